"""New rows without labels, for a model that is in use: a table's cells, encoded as in training.

Training asks a column's cells what they are. Here the schema says it: a file of one row with the word "none" is read as
the column of words that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedamp.data.silos.cells import LONGEST_WORD, as_number, is_missing, is_perhaps_missing, label_name
from fedamp.data.silos.files.dates import as_days, days_of
from fedamp.data.silos.files.decimals import comma_number
from fedamp.data.silos.one_line import brief, differing_names, listed
from fedamp.data.silos.raw import Array, RawSilo
from fedamp.data.silos.schema import Schema, apply_schema, open_to_newcomers
from fedamp.data.silos.schema.notes import constant, not_constant
from fedamp.errors import UserError

Cells = Sequence[Any] | Array
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NewTable:
    """A table as it was handed over: columns of cells, and where each row stands in it."""

    name: str
    columns: Mapping[str, Cells]
    place: Callable[[int], str] = field(repr=False)  # of a row: "line 7" of a file, "row 5" in memory
    commas: bool = False  # whether numbers may have decimal commas, as in a file that is not separated by commas

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def where(self, row: int, column: str) -> str:
        """Return where a cell stands, for an error."""
        return f"{self.name}, {self.place(row)}, column {column!r}"


def encode_table(schema: Schema, table: NewTable, ignored: Collection[str] = ()) -> tuple[Tensor, list[str]]:
    """Return a table's inputs (N, *input_shape), encoded and scaled as in training, and what is worth a warning.

    Columns may be in any order. Those to predict and those that the schema leaves out may be there or not; `ignored`
    names more of them. A word that the schema does not know is none of its column's words.
    """
    check_names(schema, table.name, table.columns, ignored)
    if not len(table):
        raise UserError(f"{table.name} has no rows; expected at least one to predict for")
    words, numbers = {}, {}
    for column in schema.columns or ():
        if column in schema.categories:
            words[column] = _words(table, column)
        else:
            numbers[column] = _days(table, column) if column in schema.dates else _numbers(table, column)
        _check_missing(schema, table, column, words[column] == "" if column in words else np.isnan(numbers[column]))
    return encode_columns(schema, table.name, numbers, words)


def check_names(schema: Schema, name: str, header: Iterable[str], ignored: Collection[str]) -> None:
    """Raise unless a table has the schema's columns, and no others than those that may be there."""
    columns = schema.columns or ()
    known = {*ignored, *schema.dropped, schema.label}
    found = [column for column in header if column in columns or column not in known]
    if names := differing_names("column", columns, found):
        raise UserError(
            f"{name}: {names}; expected the columns that the model learned from, in any order "
            "(a column that identifies rows is named with --id, in Python id=)"
        )


def encode_columns(
    schema: Schema, name: str, numbers: Mapping[str, Floats], words: Mapping[str, Array]
) -> tuple[Tensor, list[str]]:
    """Return columns of the schema's kinds as inputs, and a warning for each with something that it does not know."""
    rows = len(next(iter((*numbers.values(), *words.values()))))
    ordered = [numbers[column] for column in schema.columns or () if column in numbers]
    x = np.stack(ordered, axis=1) if ordered else np.empty((rows, 0))
    lines = [line for column, cells in words.items() for line in _unknown(column, cells, schema.categories[column])]
    lines += [line for column in schema.constants for line in _varied(schema, column, numbers[column])]
    return encode(schema, x, words, name), lines


def encode(schema: Schema, x: Array, words: Mapping[str, Array], name: str) -> Tensor:
    """Return inputs as training has them: by `apply_schema` itself, with a target that is as good as any other."""
    y: Array = np.zeros(len(x)) if schema.labels is None else np.full(len(x), schema.labels[0])
    silo = RawSilo(name, x, y, schema.columns, words, schema.label, dates=schema.dates)
    try:
        return apply_schema(open_to_newcomers(schema), silo)[0]
    except UserError as error:
        raise UserError(str(error).replace(f"silo {name!r}", name)) from None


def _check_missing(schema: Schema, table: NewTable, column: str, lacking: NDArray[np.bool_]) -> None:
    if schema.missing != "fill" and lacking.any():
        row = int(lacking.argmax())
        raise UserError(
            f"{table.where(row, column)} {_is(table.columns[column][row])}; expected a value in every row: the model "
            "was trained without missing cells (--missing fill), so complete the row or leave it out"
        )


def _is(cell: Any) -> str:
    return "is empty" if cell is None or (isinstance(cell, str) and not cell.strip()) else f"is {brief(cell)}"


def _numbers(table: NewTable, column: str) -> Floats:
    """Return a column's numbers, nan where one is missing; a word is an error that says where it is."""
    cells = table.columns[column]
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        values = cells.astype(np.float64)
    else:
        values = np.array([_number(table, column, row, cell) for row, cell in enumerate(cells)], dtype=np.float64)
    for row in np.flatnonzero(np.isinf(values))[:1].tolist():
        raise UserError(f"{table.where(row, column)} {_is(cells[row])}; expected a finite number")
    return values


def _number(table: NewTable, column: str, row: int, cell: Any) -> float:
    if lacks(cell) or (isinstance(cell, str) and is_perhaps_missing(cell)):
        return np.nan
    flag = isinstance(cell, bool | np.bool_)
    value = float(cell) if flag else as_number(cell if isinstance(cell, str) else str(cell))
    if value is None and table.commas:
        value = comma_number(cell.strip())
    if value is None or abs(value) > np.finfo(np.float64).max:
        raise UserError(f"{table.where(row, column)} {_is(cell)}; expected a finite number, as the model learned from")
    return float(value)


def _days(table: NewTable, column: str) -> Floats:
    """Return a column's dates as days since 1970-01-01, nan where one is missing."""
    cells = table.columns[column]
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        cells = cells.astype("datetime64[us]").tolist()
    days = np.full(len(cells), np.nan)
    texts: dict[int, str] = {}
    for row, cell in enumerate(cells):
        if lacks(cell) or (isinstance(cell, str) and is_perhaps_missing(cell)):
            continue
        if isinstance(cell, str):
            texts[row] = cell.strip()
        elif isinstance(cell, date):  # a datetime is one too
            days[row] = days_of(cell if isinstance(cell, datetime) else datetime.combine(cell, time()))
        else:
            raise UserError(f"{table.where(row, column)} {_is(cell)}; expected a date, as the model learned from")
    read, trouble = as_days(list(texts.values()))
    for row, day in zip(texts, read, strict=True):
        if day is None:
            raise UserError(f"{table.where(row, column)} {_is(cells[row])}; expected a date, say 2024-01-31")
        days[row] = day
    if trouble:
        raise UserError(f"{table.where(next(iter(texts)), column)} {_is(cells[next(iter(texts))])}: {trouble}")
    return days


def _words(table: NewTable, column: str) -> Array:
    """Return a column's words, "" where one is missing."""
    words = []
    for row, cell in enumerate(table.columns[column]):
        word = "" if lacks(cell) else cell.strip() if isinstance(cell, str) else label_name(cell)
        if len(word) > LONGEST_WORD:
            raise UserError(
                f"{table.where(row, column)} has a text of {len(word)} characters; expected a word of up to "
                f"{LONGEST_WORD}"
            )
        words.append(word)
    return np.array(words, dtype=np.str_)


def lacks(cell: Any) -> bool:
    """Whether a cell holds nothing: a text like "" or NA, None, or what pandas and numpy have for it."""
    if isinstance(cell, str):
        return is_missing(cell)
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and bool(np.isnan(cell))


def _unknown(column: str, cells: Array, known: Collection[str]) -> list[str]:
    """Return a warning if some words of a column are none of those that the model learned from."""
    words, counts = np.unique(cells, return_counts=True)
    found = zip(words.tolist(), counts.tolist(), strict=True)
    new = {word: count for word, count in found if word and word not in known}
    if not new:
        return []
    return [
        f"column {column!r} has words that the model never saw in {sum(new.values())} of {len(cells)} rows "
        f"({listed(new, 3)}); they count as none of its words ({listed(known, 6)})"
    ]


def _varied(schema: Schema, column: str, numbers: Floats) -> list[str]:
    """Return a warning if a column that was the same in all rows of training is not any more."""
    other = not_constant(schema, column, numbers)
    if not other.any():
        return []
    return [
        f"column {column!r} was {constant(schema, column)} in all rows that the model learned from, and is not in "
        f"{other.sum()} of {len(numbers)} rows; the model knows nothing of other values, and takes no notice of them"
    ]


def ids_of(table: NewTable, column: str) -> list[str]:
    """Return the cells of a column that identifies rows, as text."""
    if column not in table.columns:
        raise UserError(f"{table.name} has no column {column!r} to take as id; its columns are {listed(table.columns)}")
    return ["" if cell is None else str(cell) for cell in table.columns[column]]
