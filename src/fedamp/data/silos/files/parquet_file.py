"""A table from a parquet file: its columns have types, so little is guessed. Text in it is read as in a csv file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.data.silos.cells import label_name
from fedamp.data.silos.files.arrow_columns import cells_of, days_in
from fedamp.data.silos.files.columns import CURE, LABEL_CURE, Cells, Column
from fedamp.data.silos.files.table import Source, Table, Wanted, make_table
from fedamp.data.silos.one_line import brief, one_line
from fedamp.errors import UserError

_ROW_NUMBERS = re.compile(r"__index_level_[0-9]+__")  # a DataFrame's index, if it has no name


def read_parquet(content: bytes, wanted: Wanted) -> Table:
    """Return what is wanted of a parquet file; columns that are not wanted are not read."""
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError:
        raise UserError("parquet files are read by pyarrow, which is not installed; pip install pyarrow") from None
    try:
        file = parquet.ParquetFile(pa.BufferReader(content))
        header = columns_among(file.schema_arrow.names)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"not a readable parquet file ({one_line(str(error), 80)}); write it again") from error
    read = wanted.read(header)
    for column in read:
        _check_type(column, file.schema_arrow.field(column).type)
    try:
        table = file.read(columns=read, use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"not a readable parquet file ({one_line(str(error), 80)}); write it again") from error
    return typed_table(table, wanted, header)


def columns_among(names: Iterable[Any]) -> list[str]:
    """Return the names of a table's columns; the numbers of rows, which pandas writes without being asked, are none."""
    return [str(name) for name in names if not _ROW_NUMBERS.fullmatch(str(name))]


def typed_table(table: Any, wanted: Wanted, header: Sequence[str] | None = None) -> Table:
    """Return what is wanted of a pyarrow table; `header` are all columns of its file, if some were not read."""
    header = columns_among(table.column_names) if header is None else header
    read = wanted.read(header)
    for column in read:
        _check_type(column, table.schema.field(column).type)
    if not len(table):
        raise UserError("there are columns but there are no rows; expected at least one row")
    return make_table(header, _Parquet({column: _decoded(table[column]) for column in read}), wanted)


class _Parquet(Source):
    """The columns of a parquet file."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns

    def cells(self, column: str) -> Cells:
        from pyarrow import types

        values = self.columns[column]
        if types.is_string(values.type):
            return cells_of(values)
        return Cells.of(["" if value is None else label_name(value) for value in values.to_pylist()])

    def feature(self, column: str, missing: str) -> Column:
        from pyarrow import types

        values = self.columns[column]
        if types.is_string(values.type):
            return super().feature(column, missing)
        numbers = days_in(values) if types.is_temporal(values.type) else _floats(values)
        lacking = np.isnan(numbers)
        infinite = np.isinf(numbers)
        if infinite.any():
            raise UserError(
                f"{self.place(int(infinite.argmax()))}, column {column!r} is {numbers[infinite.argmax()]}; "
                "expected finite numbers"
            )
        if lacking.any() and missing == "refuse":
            row = self.place(int(lacking.argmax()))
            raise UserError(f"{row}, column {column!r} is empty; expected a value in every row; {CURE}")
        return Column(numbers, lacking if lacking.any() else None, types.is_temporal(values.type))

    def labels(self, column: str, missing: str) -> Column:
        from pyarrow import compute as pc
        from pyarrow import int64, types

        values = self.columns[column]
        if types.is_string(values.type):
            return super().labels(column, missing)
        if types.is_temporal(values.type):
            raise UserError(f"column {column!r} has dates; expected labels, as numbers or words")
        numbers = _floats(values)
        lacking = np.isnan(numbers)
        if lacking.any() and missing != "drop":
            row = self.place(int(lacking.argmax()))
            raise UserError(f"{row}, column {column!r} is empty; expected a label in every row; {LABEL_CURE}")
        infinite = np.isinf(numbers)
        if infinite.any():
            raise UserError(f"{self.place(int(infinite.argmax()))}, column {column!r} is infinite; expected a label")
        if types.is_integer(values.type) or types.is_boolean(values.type):
            if (numbers[~lacking] >= 2.0**63).any():  # more than an int64 holds
                return super().labels(column, missing)
            numbers = pc.fill_null(pc.cast(values, int64()), 0).to_numpy()
        return Column(numbers, lacking if lacking.any() else None)


def _check_type(column: str, kind: Any) -> None:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    if not (text or number or types.is_timestamp(kind) or types.is_date(kind) or types.is_null(kind)):
        raise UserError(
            f"column {column!r} has the type {brief(str(kind))}; expected numbers, words or dates; leave it out with "
            f"--drop {column}"
        )


def _decoded(column: Any) -> Any:
    """Return a column without a dictionary, with one type of text."""
    import pyarrow as pa
    from pyarrow import compute as pc
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if types.is_large_string(column.type) or types.is_string_view(column.type):
        column = pc.cast(column, pa.string())
    return pc.cast(column, pa.float64()) if types.is_null(column.type) else column


def _floats(column: Any) -> NDArray[np.float64]:
    """Return numbers as float64, null as nan."""
    import pyarrow as pa
    from pyarrow import compute as pc
    from pyarrow import types

    if types.is_integer(column.type) or types.is_boolean(column.type):
        whole = column.to_numpy() if not column.null_count else None
        if whole is not None:
            return np.asarray(whole, dtype=np.float64)
    values: NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    return values
