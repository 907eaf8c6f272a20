"""New rows without labels, for a model that is in use: a csv file or a table in memory, encoded as in training."""

from __future__ import annotations

import io
import os.path
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedamp.data.silos.cells import LONGEST_WORD, as_number, label_name
from fedamp.data.silos.csv_file import _read_rows
from fedamp.data.silos.one_line import brief, differing_names, listed, shown
from fedamp.data.silos.raw import Array, RawSilo
from fedamp.data.silos.schema import Schema, apply_schema
from fedamp.errors import UserError

Cells = Sequence[Any] | Array


@dataclass(frozen=True)
class NewTable:
    """A table as it was handed over: columns of cells, and where each row stands in it."""

    name: str
    columns: Mapping[str, Cells]
    place: Callable[[int], str] = field(repr=False)  # of a row: "line 7" of a file, "row 5" in memory

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


def read_table(path: Path) -> NewTable:
    """Return the cells of a csv file with a header."""
    try:
        with path.open("rb") as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            header, rows, lines = _read_rows(text)
    except OSError as error:
        raise UserError(f"{shown(path)} can't be read: {error.strerror or error}") from None
    except UserError as error:
        raise UserError(f"{shown(path)}: {error}") from None
    cells: list[Cells] = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    return NewTable(shown(path), dict(zip(header, cells, strict=True)), lambda row: f"line {lines[row]}")


def table_in_memory(data: Any) -> NewTable | None:
    """Return a DataFrame (of pandas, polars, pyarrow or the like) or a mapping of columns as a table; None for others.

    Known by what it can do, so that none of these packages is needed.
    """
    if not isinstance(data, Mapping) and not hasattr(data, "columns") and hasattr(data, "__arrow_c_stream__"):
        import pyarrow  # type: ignore[import-untyped, unused-ignore]

        data = pyarrow.table(data)
    if isinstance(data, Mapping):
        names: list[Any] = list(data)
    elif hasattr(data, "column_names"):  # pyarrow's, whose `columns` are not names
        names = list(data.column_names)
    elif hasattr(data, "columns"):
        names = list(data.columns)
    else:
        return None
    columns = {str(name): _cells(data[name]) for name in names}
    if len(columns) < len(names):
        raise UserError(f"the table has a column twice, among {listed(names)}; expected each name once")
    if len({len(cells) for cells in columns.values()}) > 1:
        lengths = ", ".join(f"{name!r} {len(cells)}" for name, cells in columns.items())
        raise UserError(f"the table's columns have unequal numbers of cells ({lengths}); expected one for each row")
    return NewTable("the table", columns, lambda row: f"row {row}")


def _cells(column: Any) -> Cells:
    if isinstance(column, str) or not hasattr(column, "__len__"):
        raise UserError(f"a column of the table is {brief(column)}; expected a cell for each row")
    cells: Cells = column.to_numpy() if hasattr(column, "to_numpy") else column
    return cells


def table_of_array(schema: Schema, array: Array) -> NewTable:
    """Return an array with a column for each of the schema's, in its order, as a table."""
    columns = schema.columns or ()
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise UserError(
            f"data has shape {array.shape}; expected (rows, {len(columns)}) with the columns {listed(columns)}, "
            "or a table that names them"
        )
    return NewTable("the array", dict(zip(columns, array.T, strict=True)), lambda row: f"row {row}")


def encode_table(schema: Schema, table: NewTable, ignored: Collection[str] = ()) -> tuple[Tensor, list[str]]:
    """Return a table's inputs (N, *input_shape), encoded and scaled as in training, and what is worth a warning.

    Columns may be in any order. Those to predict and those that the schema leaves out may be there or not; `ignored`
    names more of them. A word that the schema does not know is none of its column's words.
    """
    columns = schema.columns or ()
    known = {*columns, *ignored, *schema.dropped, *(() if schema.label is None else (schema.label,))}
    found = [name for name in table.columns if name in columns or name not in known]
    if names := differing_names("column", columns, found):
        raise UserError(
            f"{table.name}: {names}; expected the columns that the model learned from, in any order "
            "(a column that identifies rows is named with --id, in Python id=)"
        )
    if not len(table):
        raise UserError(f"{table.name} has no rows; expected at least one to predict for")
    lines: list[str] = []
    words, numbers = {}, []
    for column in columns:
        if column in schema.categories:
            words[column] = _words(table, column)
            lines += _unknown(column, words[column], schema.categories[column])
        else:
            numbers.append(_numbers(table, column))
    x = np.stack(numbers, axis=1) if numbers else np.empty((len(table), 0))
    return encode(schema, x, words, table.name), lines


def encode(schema: Schema, x: Array, words: Mapping[str, Array], name: str) -> Tensor:
    """Return inputs as training has them: by `apply_schema` itself, with a target that is as good as any other."""
    y: Array = np.zeros(len(x)) if schema.labels is None else np.full(len(x), schema.labels[0])
    silo = RawSilo(name, x, y, schema.columns, words, schema.label)
    return apply_schema(replace(schema, others=tuple(schema.categories)), silo)[0]


def _numbers(table: NewTable, column: str) -> NDArray[np.float64]:
    """Return a column's numbers; a cell that is none is an error that says where it is."""
    cells = table.columns[column]
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        values = cells.astype(np.float64)
    else:
        values = np.array([_number(table, column, row, cell) for row, cell in enumerate(cells)], dtype=np.float64)
    for row in np.flatnonzero(~np.isfinite(values))[:1].tolist():
        raise UserError(
            f"{table.name}, {table.place(row)}, column {column!r} is {brief(cells[row])}; expected a finite number"
        )
    return values


def _number(table: NewTable, column: str, row: int, cell: Any) -> float:
    where = f"{table.name}, {table.place(row)}, column {column!r}"
    if is_missing(cell):
        raise UserError(f"{where} is empty; expected a number in every row")
    value = as_number(cell) if isinstance(cell, str) else as_number(str(float(cell)) if _is_flag(cell) else str(cell))
    if value is None or abs(value) > np.finfo(np.float64).max:
        raise UserError(f"{where} is {brief(cell)}; expected a finite number, as the model learned from")
    return float(value)


def _is_flag(cell: Any) -> bool:
    return isinstance(cell, bool | np.bool_)


def _words(table: NewTable, column: str) -> Array:
    """Return a column's words."""
    words = []
    for row, cell in enumerate(table.columns[column]):
        word = "" if is_missing(cell) else cell.strip() if isinstance(cell, str) else label_name(cell)
        if not word or len(word) > LONGEST_WORD:
            what = f"has a text of {len(word)} characters" if word else "is empty"
            raise UserError(
                f"{table.name}, {table.place(row)}, column {column!r} {what}; expected a word of up to {LONGEST_WORD} "
                "characters in every row"
            )
        words.append(word)
    return np.array(words)


def is_missing(cell: Any) -> bool:
    """Whether a cell holds nothing: an empty text, None, or what pandas and numpy have for it."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return not cell.strip() if isinstance(cell, str) else isinstance(cell, float | np.floating) and bool(np.isnan(cell))


def _unknown(column: str, cells: Array, known: Collection[str]) -> list[str]:
    """Return a warning if some words of a column are none of those that the model learned from."""
    words, counts = np.unique(cells, return_counts=True)
    new = {word: count for word, count in zip(words.tolist(), counts.tolist(), strict=True) if word not in known}
    if not new:
        return []
    return [
        f"column {column!r} has words that the model never saw in {sum(new.values())} of {len(cells)} rows "
        f"({listed(new, 3)}); they count as none of its words ({listed(known, 6)})"
    ]


def ids_of(table: NewTable, column: str) -> list[str]:
    """Return the cells of a column that identifies rows, as text."""
    if column not in table.columns:
        raise UserError(f"{table.name} has no column {column!r} to take as id; its columns are {listed(table.columns)}")
    return ["" if is_missing(cell) else str(cell) for cell in table.columns[column]]


def read_array(path: Path) -> Array:
    """Return `x` of an npz file, or the array of an npy file; nothing in it is unpickled."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return found
            if "x" not in found.files:
                raise UserError(f"{shown(path)} has no array 'x', but {listed(found.files)}; expected x (samples, ...)")
            array: Array = found["x"]
            return array
    except OSError as error:
        raise UserError(f"{shown(path)} can't be read: {error.strerror or error}") from None
    except UserError:
        raise
    except Exception as error:  # whatever a damaged archive makes zipfile, zlib or numpy raise
        why = " ".join(str(error).split())[:120]
        raise UserError(f"{shown(path)} is not a readable npz file ({why}); expected one made by np.savez") from None


def check_file(path: Path) -> None:
    """Raise unless there is a file of this name."""
    if os.path.isdir(path):
        raise UserError(f"{shown(path)} is a folder; expected a file with the rows to predict for")
    if not os.path.exists(path):
        raise UserError(f"there is no file {shown(path)}; expected one with the rows to predict for")
