"""A silo's rows from a csv file: a header, then numbers or words; an error names the line and the column."""

from __future__ import annotations

import csv
import difflib
import sys
from collections.abc import Collection, Sequence
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fedamp.data.silos.cells import LONGEST_WORD, as_number
from fedamp.data.silos.one_line import brief, listed, one_line
from fedamp.data.silos.raw import Array, RawSilo
from fedamp.errors import UserError


def read_csv(file: IO[str], name: str, label: str, drop: Collection[str] = ()) -> RawSilo:
    """Return the rows of a silo; its targets are in the column `label`. Columns to drop may hold anything."""
    header, rows, lines = _read_rows(file)
    if label not in header:
        near = difflib.get_close_matches(label, header, n=1, cutoff=0.6)
        hint = f" (did you mean {brief(near[0])}?)" if near else ""
        if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
            hint = "; expected commas between cells"
        cure = "name the column to predict with --label (label= in Python)"
        raise UserError(f"there is no label column {label!r}{hint}; the columns are {listed(header)}; {cure}")
    dropped = tuple(column for column in header if column in drop and column != label)
    if len(header) - len(dropped) < 2:
        raise UserError(f"the only column is {label!r}; expected features besides the labels")
    if not rows:
        raise UserError("there is a header but there are no rows; expected at least one row")
    numbers: list[NDArray[np.float64]] = []
    words: dict[str, Array] = {}
    y: Array = np.empty(0)
    for column, cells in zip(header, zip(*rows, strict=True), strict=True):
        if column in dropped:
            continue
        if column == label:
            y = _labels(column, cells, lines)
            continue
        values = _numbers(column, cells, lines)
        if values is None:
            words[column] = np.array(cells)
        else:
            numbers.append(values)
    x = np.stack(numbers, axis=1) if numbers else np.empty((len(rows), 0))
    features = tuple(column for column in header if column != label and column not in dropped)
    return RawSilo(name, x, y, features, words, label, dropped)


def _read_rows(file: IO[str]) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the header, the rows, and the line on which each row starts; blanks around a cell don't count."""
    header: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    # strict: without it a quote left open silently swallows the rest of the file.
    reader = csv.reader(file, strict=True)
    end = 0
    try:
        for row in reader:
            start, end = end + 1, reader.line_num
            cells = [cell.strip() for cell in row]
            if not cells:  # an empty line
                continue
            if any("\0" in cell for cell in cells):
                raise UserError(f"line {start} has a zero byte; expected text in utf-8")
            if not header:
                header = cells
                _check_header(header)
                continue
            if len(cells) != len(header):
                some = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
                raise UserError(f"line {start} has {some}; expected {len(header)}, as in the header")
            rows.append(cells)
            lines.append(start)
    except UnicodeDecodeError as error:
        raise UserError(f"not text in utf-8 ({error.reason} after line {end}); save it as utf-8") from error
    except csv.Error as error:
        raise UserError(
            f"line {end + 1} is not csv ({one_line(str(error))}); expected commas and closed quotes"
        ) from error
    if not header:
        raise UserError("the file is empty; expected a header and rows")
    return header, rows, lines


def _check_header(header: Sequence[str]) -> None:
    seen: set[str] = set()
    for place, column in enumerate(header, 1):
        if not column:
            raise UserError(
                f"column {place} has no name in the header; name it or drop it (pandas: to_csv with index=False)"
            )
        if len(column) > LONGEST_WORD:
            raise UserError(f"the name of column {place} has {len(column)} characters; expected a header of names")
        if column in seen:
            raise UserError(f"column {column!r} appears twice; expected each name once")
        seen.add(column)


def _numbers(column: str, cells: Sequence[str], lines: Sequence[int]) -> NDArray[np.float64] | None:
    """Return a column's numbers; None if no cell is a number, which makes it a column of words."""
    try:  # what most columns need; asking of each cell what it is nearly doubles the time
        fast = np.array([float(cell) for cell in cells])
        if np.isfinite(fast).all() and not any("_" in cell for cell in cells):
            return fast
    except ValueError:
        pass
    values = [as_number(cell) for cell in cells]
    wordy = [i for i, value in enumerate(values) if value is None]
    missing = [i for i, (value, cell) in enumerate(zip(values, cells, strict=True)) if not _usable(value, cell)]
    if missing:
        cell = cells[missing[0]]
        raise UserError(
            f"line {lines[missing[0]]}, column {column!r} "
            f"{f'is {brief(cell)}' if cell else 'is empty'}; expected a finite number or a word in every row"
        )
    if len(wordy) == len(cells):
        long = [i for i, cell in enumerate(cells) if len(cell) > LONGEST_WORD]
        if long:
            raise UserError(
                f"line {lines[long[0]]}, column {column!r} has a text of {len(cells[long[0]])} characters; "
                f"expected numbers, or words of up to {LONGEST_WORD}: drop the column"
            )
        return None
    raise UserError(
        f"line {lines[wordy[0]]}, column {column!r} is {brief(cells[wordy[0]])}, which is not a number, "
        f"but {len(cells) - len(wordy)} of {len(cells)} rows have one; expected numbers in all rows, or words in all"
    )


def _labels(column: str, cells: Sequence[str], lines: Sequence[int]) -> Array:
    """Return labels as whole numbers if all are, else as numbers, else as text."""
    values = [as_number(cell) for cell in cells]
    for line, cell, value in zip(lines, cells, values, strict=True):
        if not _usable(value, cell):
            raise UserError(
                f"line {line}, column {column!r} {f'is {brief(cell)}' if cell else 'is empty'}; "
                "expected a label in every row"
            )
        if len(cell) > LONGEST_WORD:
            raise UserError(
                f"line {line}, column {column!r} has {len(cell)} characters; expected a label of up to {LONGEST_WORD}"
            )
    limit = np.iinfo(np.int64).max
    if all(isinstance(value, int) and -limit <= value <= limit for value in values):
        return np.array(values, dtype=np.int64)
    # A whole number beyond 64 bits names a class, and a float would merge it with its neighbours.
    if all(isinstance(value, float) or (value is not None and abs(value) <= limit) for value in values):
        return np.array(values, dtype=np.float64)
    return np.array(cells)


def _usable(value: float | int | None, cell: str) -> bool:
    """Whether a cell holds a word or a number that a float can hold."""
    return bool(cell) if value is None else abs(value) <= sys.float_info.max
