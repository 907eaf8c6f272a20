"""Whether rows consist of what a schema says: the same columns, the same kinds of cells, the same shape."""

from __future__ import annotations

from collections.abc import Collection

from fedamp.data.silos.one_line import differing_names
from fedamp.data.silos.schema.definition import Schema


def layout_difference(
    schema: Schema,
    columns: tuple[str, ...] | None,
    wordy: Collection[str],
    shape: tuple[int, ...],
    pictures: bool,
    dates: Collection[str] = (),
    unknown: Collection[str] = (),
) -> str:
    """Return in words how other rows differ from a schema in what they consist of; "" if they fit.

    A column without a known cell, there or in the schema, may become of any kind.
    """
    if (columns is None) != (schema.columns is None):
        kinds = ("a table (csv)", "arrays (npz)")
        here, there = kinds if columns is not None else kinds[::-1]
        return f"it has {here}, expected {there}; use one kind of file for all silos"
    if columns is not None and schema.columns is not None:
        if names := differing_names("column", schema.columns, columns):
            return f"{names}; expected the same columns in all silos"
        for column in columns:
            here = _kind(column, wordy, dates)
            there = _kind(column, schema.categories, schema.dates)
            if here != there and column not in (*unknown, *schema.unknown):
                return f"column {column!r} has {here}, expected {there}; write it the same way in all silos"
        return ""
    if tuple(shape) != schema.input_shape:
        return f"it has samples of shape {tuple(shape)}, expected {schema.input_shape}"
    if pictures != schema.pictures:
        here, there = ("bytes (uint8)", "other numbers") if pictures else ("other numbers", "bytes (uint8)")
        return f"x holds {here}, expected {there}; save x with the same type in all silos"
    return ""


def _kind(column: str, wordy: Collection[str], dates: Collection[str]) -> str:
    return "words" if column in wordy else "dates" if column in dates else "numbers"
