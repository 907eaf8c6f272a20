"""Which mark stands between the cells of a text file: a comma, a semicolon, a tab or a bar."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection

SEPARATORS = (",", ";", "\t", "|")
BEGINNING = 2**16  # bytes of a file that are looked at
ROWS = 50


def find_separator(content: bytes, names: Collection[str] = ()) -> str:
    """Return the mark that makes a table of a file's beginning; `names` are columns that the header should have.

    A mark that gives one of the names counts more than one that gives rows of equal length, and that more than many
    columns: 'size, cm;label' has a comma too. Without any the answer is a comma.
    """
    text = content[:BEGINNING].decode("utf-8", "replace")
    return max(SEPARATORS, key=lambda mark: (*_fit(text, mark, names), -SEPARATORS.index(mark)))


def read_header(text: str, separator: str) -> list[str]:
    """Return the names of the columns; "" stands for what can't be read."""
    try:
        rows = (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True) if row)
        return [cell.strip() for cell in next(rows, [])]
    except csv.Error:
        return [""]


def _fit(text: str, separator: str, names: Collection[str]) -> tuple[int, bool, int]:
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            if row:
                rows.append([cell.strip() for cell in row])
            if len(rows) > ROWS:
                break
    except csv.Error:
        pass
    if len(rows) > 2:
        rows.pop()  # it may be cut
    if not rows or len(rows[0]) < 2:
        return 0, False, 0
    header = rows[0]
    return len({*names} & {*header}), all(len(row) == len(header) for row in rows), len(header)
