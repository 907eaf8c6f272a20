"""Whole tables from Python (pandas, polars, pyarrow, Hugging Face, structured arrays): silos as from files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedamp.data.silos.files.parquet_file import typed_table
from fedamp.data.silos.files.table import Wanted, silos_of
from fedamp.data.silos.one_line import one_line
from fedamp.data.silos.raw import RawSilo
from fedamp.errors import UserError

LIBRARIES = ("pandas", "polars", "pyarrow", "datasets")


def is_table(given: Any) -> bool:
    """Whether this has rows and named columns; a Series, or an array without names, has none."""
    if isinstance(given, np.ndarray):
        return given.dtype.names is not None
    known = type(given).__module__.partition(".")[0] in LIBRARIES
    return known and (hasattr(given, "column_names") or hasattr(given, "columns")) and not isinstance(given, type)


def column_names(table: Any) -> list[str]:
    """Return the names of a table's columns."""
    if isinstance(table, np.ndarray):
        return list(table.dtype.names or ())
    # First pyarrow's and Hugging Face's word for it: pyarrow's `columns` are not names.
    return [str(name) for name in getattr(table, "column_names", None) or table.columns]


def silos_of_tables(tables: Mapping[str, Any], wanted: Wanted) -> list[RawSilo]:
    """Return a silo for each table, under its name; an error begins with that name."""
    return [_named(name, table, replace(wanted, silo_column=None))[0] for name, table in tables.items()]


def silos_of_table(table: Any, wanted: Wanted) -> list[RawSilo]:
    """Return the silos that the rows of one table make, ordered by name; its `silo_column` says whose row it is."""
    return _named("data", table, wanted)


def _named(name: str, table: Any, wanted: Wanted) -> list[RawSilo]:
    try:
        return silos_of(typed_table(_arrow(table), wanted), name, wanted)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def _arrow(table: Any) -> Any:
    """Return a table as pyarrow's, with names that are texts and without an index."""
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
    except ImportError:
        raise UserError("whole tables are read by pyarrow, which is not installed; pip install pyarrow") from None
    try:
        if isinstance(table, np.ndarray):
            return pa.table({str(name): _plain(table[name]) for name in table.dtype.names or ()})
        library = type(table).__module__.partition(".")[0]
        if library == "pandas":
            names = [str(name) for name in table.columns]
            return pa.Table.from_pandas(table, preserve_index=False).rename_columns(names)
        if library == "datasets":
            return table.with_format("arrow")[:]
        if library == "polars":
            return table.to_arrow()
        return table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
    except (pa.ArrowException, TypeError, ValueError, KeyError, NotImplementedError, AttributeError) as error:
        why = ": ".join(str(part) for part in reversed(error.args))  # the column comes last
        raise UserError(
            f"a {type(table).__name__} that can't be read as a table ({one_line(' '.join(why.split()), 140)}); "
            "expected one kind of value in each column, and each name once"
        ) from None


def _plain(column: Any) -> Any:
    """Return a structured array's column as pyarrow takes it: bytes as text, in one piece."""
    return np.ascontiguousarray(np.char.decode(column, "utf-8") if column.dtype.kind == "S" else column)
