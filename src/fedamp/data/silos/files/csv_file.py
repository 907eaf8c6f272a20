"""A table from a text file: by pyarrow where it reads a file as the line reader would, else line by line.

The line reader knows where every cell stands. So whatever is doubtful is left to it, and it explains what is wrong.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Sequence

from fedamp.data.silos.files.arrow_csv import DoubtfulError, read_by_arrow
from fedamp.data.silos.files.columns import Cells
from fedamp.data.silos.files.content import as_utf8, check_utf8
from fedamp.data.silos.files.separator import find_separator
from fedamp.data.silos.files.table import Source, Table, Wanted, make_table
from fedamp.data.silos.one_line import one_line
from fedamp.errors import UserError

NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def read_csv(content: bytes, wanted: Wanted) -> Table:
    """Return what is wanted of a text file."""
    content = as_utf8(content, wanted.encoding)
    separator = find_separator(content, wanted.named)
    with contextlib.suppress(DoubtfulError):
        return read_by_arrow(content, separator, wanted)
    return read_by_lines(content, separator, wanted)


def read_by_lines(content: bytes, separator: str, wanted: Wanted) -> Table:
    """Return what is wanted of a text file; an error names the line and the column."""
    check_utf8(content)
    header, rows, lines = read_rows(content.decode(), separator)
    wanted.features(header)  # what is wrong with the header is said first
    if not rows:
        raise UserError("there is a header but there are no rows; expected at least one row")
    return make_table(header, _Lines(header, rows, lines, separator), wanted)


class _Lines(Source):
    """The rows of a text file, with the line on which each starts."""

    def __init__(self, header: list[str], rows: Sequence[list[str]], lines: list[int], separator: str) -> None:
        self.columns = dict(zip(header, zip(*rows, strict=True), strict=True))
        self.lines, self.separator = lines, separator

    def place(self, row: int) -> str:
        return f"line {self.lines[row]}"

    def cells(self, column: str) -> Cells:
        return Cells.of(self.columns[column])


def read_rows(text: str, separator: str) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the header, the rows, and the line on which each row starts; blanks around a cell don't count."""
    header: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    # strict: without it a quote left open silently swallows the rest of the file.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    end = 0
    try:
        for row in reader:
            start, end = end + 1, reader.line_num
            cells = [cell.strip() for cell in row]
            if not cells:  # an empty line
                continue
            if any("\0" in cell for cell in cells):
                raise UserError(f"line {start} has a zero byte; expected text (--encoding utf-16-le, if it is that)")
            if not header:
                header = cells
                continue
            if len(cells) != len(header):
                some = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
                raise UserError(f"line {start} has {some}; expected {len(header)}, as in the header")
            rows.append(cells)
            lines.append(start)
    except csv.Error as error:
        raise UserError(
            f"line {end + 1} is not csv ({one_line(str(error))}); expected {NAMES[separator]} and closed quotes"
        ) from error
    if not header:
        raise UserError("the file is empty; expected a header and rows")
    return header, rows, lines
