"""What is allowed in a schema, but worth a line to whoever runs the federation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedamp.data.silos.one_line import as_date, brief, listed
from fedamp.data.silos.raw import Array, RawSilo
from fedamp.data.silos.schema.definition import Schema
from fedamp.data.silos.targets import MANY, labels_of

FEW = 4  # columns of which each has a line of its own


def schema_notes(schema: Schema, silos: Sequence[RawSilo] = ()) -> list[str]:
    """Return what is allowed but worth a line to whoever runs the federation."""
    notes = []
    for column, words in schema.categories.items():
        notes.append(f"column {column!r} has {len(words)} words ({listed(words, 4)}): each becomes an input")
        if len(words) > MANY:
            notes.append(f"column {column!r} may be a name, a date or a text: the schema shows its words to everyone")
    notes += _filled(schema)
    constant = [name for name, spread in zip(schema.features, schema.spread, strict=False) if not spread]
    if constant:
        notes.append(f"the same in all rows, so of no use: {listed(constant)}")
    if schema.pictures and len(schema.input_shape) == 1:
        notes.append("x holds bytes, so it is taken as pictures and divided by 255; save other numbers as float32")
    for silo in silos if schema.task == "classification" else ():
        names = labels_of(silo.y)
        if len(names) == 1:
            notes.append(f"silo {silo.name!r} has rows of one class only, {brief(names[0])}")
    return notes


def _filled(schema: Schema) -> list[str]:
    """Return which cells are filled, and with what; of many columns only how many cells they lack."""
    lacking = {column: 100 * rows / schema.count for column, rows in schema.missing_cells.items()}
    lacking = {column: percent for column, percent in lacking.items() if column in schema.fills}
    told = ", with an input that says so" if schema.indicate else ""
    if len(lacking) > FEW:
        least, most = min(lacking.values()), max(lacking.values())
        told = ", each with an input that says so" if schema.indicate else ""
        return [
            f"{len(lacking)} columns lack {least:.2g} to {most:.2g} % of their cells, filled with the mean or the most "
            f"frequent word of all silos{told}: {listed(lacking, FEW)}"
        ]
    return [
        f"column {column!r}: {percent:.2g} % missing, filled with {filling(schema, column)}{told}"
        for column, percent in lacking.items()
    ]


def filling(schema: Schema, column: str) -> str:
    """Return in words what a missing cell of a column becomes."""
    value = schema.fills[column]
    if isinstance(value, str):
        return brief(value)
    return as_date(value) if column in schema.dates else f"{value:.4g}"


def constant(schema: Schema, column: str) -> str:
    """Return in words what a column is that is the same in all rows."""
    value = schema.constants[column]
    return as_date(value) if column in schema.dates else f"{value:g}"


def not_constant(schema: Schema, column: str, numbers: Array) -> NDArray[np.bool_]:
    """Return which numbers (N,) are not what such a column is in the schema's rows; a missing one may be."""
    return ~np.isnan(numbers) & ~np.isclose(numbers, schema.constants[column], rtol=1e-6, atol=0)
