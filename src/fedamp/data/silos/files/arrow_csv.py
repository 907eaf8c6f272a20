"""A table from a text file by pyarrow, many times as fast as line by line, and the same to the last bit.

pyarrow takes the lines apart, and reads plain numbers. What a column holds is decided where the line reader decides it,
by the column's different cells. Whatever the two could see differently is doubtful, and left to the line reader.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fedamp.data.silos.files.arrow_columns import cells_of, fast_feature, fast_labels
from fedamp.data.silos.files.columns import Cells, Column
from fedamp.data.silos.files.separator import BEGINNING, read_header
from fedamp.data.silos.files.table import Source, Table, Wanted, make_table

BLOCK = 2**22  # bytes that pyarrow takes at a time
LONGEST_CELL = 2**17  # Python's csv refuses longer ones
# `use_threads=False` wherever pyarrow reads: it costs nothing here, and its threads are known to abort or to hang a
# program that ends right after a read, as a refused command does (apache/arrow#34314, #39862, #50482).


class DoubtfulError(Exception):
    """The line reader should look at this file."""


def read_by_arrow(content: bytes, separator: str, wanted: Wanted) -> Table:
    """Return what is wanted of a text file in utf-8; `DoubtfulError` if the line reader should read it, or explain."""
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        from pyarrow import csv
    except ImportError:
        raise DoubtfulError from None
    header = read_header(content[:BEGINNING].decode("utf-8", "replace"), separator)
    if len(content) < 2 or content[:1] in b"\r\n" or b"\0" in content or "\ufffd" in str(header):
        raise DoubtfulError
    if not _clear_quotes(content, separator):
        raise DoubtfulError
    try:
        read = wanted.read(header)
        names = [str(place) for place in range(len(header))]  # names of columns may be anything
        used = {column: name for column, name in zip(header, names, strict=True) if column in read}
        table = csv.read_csv(
            pa.BufferReader(content),
            csv.ReadOptions(use_threads=False, column_names=names, skip_rows_after_names=1, block_size=BLOCK),
            csv.ParseOptions(delimiter=separator, newlines_in_values=b'"' in content),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
                include_columns=list(used.values()),
            ),
        )
    except (ValueError, pa.ArrowException):
        raise DoubtfulError from None
    if not len(table):
        raise DoubtfulError
    columns = {column: table[name] for column, name in used.items()}
    return make_table(header, _Arrow(columns, separator, partial(_a_row_a_line, content, len(table))), wanted)


class _Arrow(Source):
    """The columns of a text file as pyarrow holds them; where a row stands, only the line reader knows for sure."""

    def __init__(self, columns: dict[str, Any], separator: str, a_row_a_line: Callable[[], bool]) -> None:
        self.columns, self.separator, self.a_row_a_line = columns, separator, a_row_a_line

    def place(self, row: int) -> str:
        if not self.a_row_a_line():  # looked for where something is wrong: it takes time
            raise DoubtfulError
        return f"line {row + 2}"  # after the header

    def cells(self, column: str) -> Cells:
        cells = cells_of(self.columns[column])
        if max(map(len, cells.texts)) > LONGEST_CELL:
            raise DoubtfulError
        return cells

    def feature(self, column: str, missing: str) -> Column:
        found = fast_feature(self.columns[column], self.separator)
        if found is None or (found.lacking is not None and missing == "refuse"):
            return super().feature(column, missing)
        return found

    def labels(self, column: str, missing: str) -> Column:
        return fast_labels(self.columns[column], self.separator) or super().labels(column, missing)


def _a_row_a_line(content: bytes, rows: int) -> bool:
    """Whether each row has a line of its own, and each line is a row: none is empty, none in the middle of a cell."""
    if b'"' in content or content.count(b"\r") != content.count(b"\r\n"):
        return False
    return content.count(b"\n") + (not content.endswith(b"\n")) == rows + 1


def _clear_quotes(content: bytes, separator: str) -> bool:
    """Whether quotes only enclose whole cells: then there is one way to read them."""
    if b'"' not in content:
        return True
    text = np.frombuffer(content, np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    if len(quotes) % 2:
        return False
    around = np.zeros(256, dtype=bool)
    around[[ord(mark) for mark in (separator, "\r", "\n", '"')]] = True
    opening, closing = quotes[::2], quotes[1::2]
    before = around[text[np.maximum(opening - 1, 0)]] | (opening == 0)
    after = around[text[np.minimum(closing + 1, len(text) - 1)]] | (closing == len(text) - 1)
    return bool(before.all() and after.all())
