"""Where new rows come from: a file, a table in memory, an array."""

from __future__ import annotations

import os.path
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedamp.data.silos.cells import is_perhaps_missing
from fedamp.data.silos.files.content import as_utf8, check_utf8, file_bytes
from fedamp.data.silos.files.csv_file import read_rows
from fedamp.data.silos.files.decimals import check_marks, marks_of
from fedamp.data.silos.files.parquet_file import columns_among
from fedamp.data.silos.files.separator import find_separator
from fedamp.data.silos.files.table import Wanted, check_header
from fedamp.data.silos.one_line import brief, listed, shown
from fedamp.data.silos.raw import Array
from fedamp.data.silos.read import ending, read_table
from fedamp.data.silos.schema import Schema
from fedamp.data.silos.unlabelled import Cells, NewTable, check_names, encode_columns, encode_table, lacks
from fedamp.errors import UserError


def encode_file(
    schema: Schema, path: Path, ignored: Collection[str] = (), encoding: str | None = None
) -> tuple[Tensor, list[str]]:
    """Return the inputs of a table's rows, and what is worth a warning.

    The readers of training are quick, and know decimal commas. Where they find something else than the schema says, the
    cells are read as the schema says, one by one; that explains what is wrong, or finds that nothing is.
    """
    try:
        return _encode_quickly(schema, path, ignored, encoding)
    except UserError:
        table, separator = _cells(path, encoding, schema.columns or ())
        found = encode_table(schema, table, ignored)
        if table.commas:
            _check_decimals(schema, table, separator)
        return found


def _encode_quickly(
    schema: Schema, path: Path, ignored: Collection[str], encoding: str | None
) -> tuple[Tensor, list[str]]:
    columns = schema.columns or ()
    table = read_table(path, Wanted(columns=columns, encoding=encoding, missing="keep"))
    check_names(schema, shown(path), (*table.features, *table.dropped), ignored)
    numbers: dict[str, Array] = {}
    words: dict[str, Array] = {}
    for column in columns:
        read = table.features[column]
        kind = "words" if read.values.dtype.kind == "U" else "dates" if read.dates else "numbers"
        wanted = "words" if column in schema.categories else "dates" if column in schema.dates else "numbers"
        if kind != wanted or (read.lacking is not None and schema.missing != "fill"):
            raise UserError(f"{shown(path)}: column {column!r} has {kind}, expected {wanted} in every row")
        (words if kind == "words" else numbers)[column] = read.values
    return encode_columns(schema, shown(path), numbers, words)


def _check_decimals(schema: Schema, table: NewTable, separator: str) -> None:
    """Raise where training would not know either what a mark within a number is for."""
    marks = {}
    for column in schema.columns or ():
        if column in schema.categories or column in schema.dates:
            continue
        cells = enumerate(table.columns[column])
        texts = {row: cell.strip() for row, cell in cells if not (lacks(cell) or is_perhaps_missing(cell))}
        marks[column] = marks_of(list(texts.values()), list(texts).__getitem__)
    try:
        check_marks(marks, separator, table.place)
    except UserError as error:
        raise UserError(f"{table.name}: {error}") from None


def read_cells(path: Path, encoding: str | None = None, names: Collection[str] = ()) -> NewTable:
    """Return the cells of a table in a file as they are written; `names` are columns that its header should have."""
    return _cells(path, encoding, names)[0]


def _cells(path: Path, encoding: str | None, names: Collection[str]) -> tuple[NewTable, str]:
    """Return the cells of a file, and the mark between them."""
    if ending(path) == ".parquet":
        return _parquet_cells(path), ","
    try:
        content = as_utf8(file_bytes(path), encoding)
        separator = find_separator(content, names)
        check_utf8(content)
        header, rows, lines = read_rows(content.decode(), separator)
        check_header(header)
    except OSError as error:
        raise UserError(f"{shown(path)} can't be read: {error.strerror or error}") from None
    except UserError as error:
        raise UserError(f"{shown(path)}: {error}") from None
    cells: list[Cells] = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    columns = dict(zip(header, cells, strict=True))
    return NewTable(shown(path), columns, lambda row: f"line {lines[row]}", commas=separator != ","), separator


def _parquet_cells(path: Path) -> NewTable:
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

    try:
        table = parquet.read_table(path, use_threads=False)
    except Exception as error:  # pyarrow has many kinds of errors
        why = " ".join(str(error).split())[:80]
        raise UserError(f"{shown(path)}: not a readable parquet file ({why}); write it again") from None
    columns = {name: table[name].to_pylist() for name in columns_among(table.column_names)}
    return NewTable(shown(path), columns, lambda row: f"row {row + 1}")


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
    if len(set(map(str, names))) < len(names):
        raise UserError(f"the table has a column twice, among {listed(names)}; expected each name once")
    columns = {str(name): _column(data[name]) for name in names}
    if len({len(cells) for cells in columns.values()}) > 1:
        lengths = ", ".join(f"{name!r} {len(cells)}" for name, cells in columns.items())
        raise UserError(f"the table's columns have unequal numbers of cells ({lengths}); expected one for each row")
    return NewTable("the table", columns, lambda row: f"row {row}")


def _column(column: Any) -> Cells:
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
