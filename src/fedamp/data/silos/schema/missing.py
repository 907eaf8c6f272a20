"""Missing cells under a schema: whether they may be there, what kind an empty column is of, and how files are read."""

from __future__ import annotations

from fedamp.data.silos.one_line import listed
from fedamp.data.silos.raw import RawSilo, with_kinds
from fedamp.data.silos.schema.definition import Schema
from fedamp.errors import UserError

READING = {"refuse": "refuse", "fill": "keep", "drop": "drop"}
"""What the reader of files is told for each way to treat missing cells: it drops rows, and a schema fills cells."""


def check_complete(silo: RawSilo) -> None:
    """Raise if a silo lacks cells, where nothing fills them."""
    if silo.missing:
        raise UserError(
            f"silo {silo.name!r} lacks cells: {lacking(silo)}; give --missing fill (by the mean, or the most frequent "
            f"word) or --missing drop (leave these rows out), or leave the columns out with --drop"
        )


def lacking(silo: RawSilo) -> str:
    """Return in words which columns lack cells, and in how many rows."""
    found = [f"column {column!r} in {int(rows.sum())} of {len(silo)} rows" for column, rows in silo.missing.items()]
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more columns" if len(found) > 3 else "")


def check_known(schema: Schema) -> None:
    """Raise if nobody has a cell of some column: it is of no kind, and there is nothing to learn from it."""
    if schema.unknown:
        raise UserError(
            f"no row of any silo has a cell of column {listed(schema.unknown)}; "
            f"leave it out with --drop {','.join(schema.unknown)}"
        )


def way_of(schema: Schema) -> str:
    """Return the flags that a schema's way with missing cells was asked for by."""
    return f"--missing {schema.missing}" + (" --indicate-missing" if schema.indicate else "")


def with_kinds_of(schema: Schema, silo: RawSilo) -> RawSilo:
    """Return a silo whose columns without a known cell are of the schema's kind: numbers, or words.

    What is known of a row is then the same whether the rest of its file knows more or not.
    """
    return with_kinds(silo, schema.categories)
