"""Cells so far from all others that the scaling flattens the rest of their column: a slip of the pen, or a code like
999999 for "not known". Models learn little from what hardly differs any more.

Asked of rows in one place only: in a federation no silo tells its extremes, and none needs to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedamp.data.silos.one_line import as_date
from fedamp.data.silos.raw import Array, RawSilo
from fedamp.data.silos.schema import Schema

FLAT = 0.1
"""Standard deviations that the other cells of a column have after the scaling, below which they are flattened."""
RARE = 0.05
"""Share of a column's cells up to which one value is an exception."""


def extreme_warnings(silos: Sequence[RawSilo], schema: Schema) -> list[str]:
    """Return which columns of numbers a single value flattens, under the schema that is made of these rows."""
    spreads = {each.column: spread for each, spread in zip(schema.inputs, schema.spread, strict=False) if each.scaled}
    lines = []
    for column, spread in spreads.items():
        parts = [silo.x[:, silo.numeric.index(column)] for silo in silos if column in silo.numeric]
        found = _extreme(np.concatenate(parts).astype(np.float64), spread) if parts else None
        if found is not None:
            value, times, away = found
            said = as_date(value) if column in schema.dates else f"{value:.10g}"
            cells = "1 cell" if times == 1 else f"{times} cells"
            lines.append(
                f"column {column!r} has {said} in {cells}, {away:.0f} standard deviations of the others from their "
                f"mean: after the scaling these hardly differ. Correct that value, empty it (--missing fill), or "
                f"leave the column out (--drop {column}, drop= in Python)"
            )
    return lines


def _extreme(cells: Array, spread: float) -> tuple[float, int, float] | None:
    """Return the value that flattens all others, how many cells have it, and how far off it is; None if none does."""
    known = cells[~np.isnan(cells)]
    if not len(known) or not np.isfinite(spread):
        return None
    farthest = known[np.abs(known - np.median(known)).argmax()]
    others = known[known != farthest]
    times = len(known) - len(others)
    if times > max(1, RARE * len(known)) or not len(others):
        return None
    usual = float(others.std())
    if not 0 < usual < FLAT * spread:  # 0: nothing but that value ever differs, as where a rare yes is a 1
        return None
    return float(farthest), times, abs(float(farthest - others.mean())) / usual
