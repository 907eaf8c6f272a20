"""Numbers as the page holds them: few digits, and tables as bytes, so that it stays small."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray


def plain(value: float) -> float | None:
    """Return a number with the digits that a plot needs; None for what is not finite."""
    return round(float(value), 5) if np.isfinite(value) else None


def thinned(count: int, most: int) -> NDArray[np.int64]:
    """Return the places of at most `most` of `count` rounds, evenly spread, the first and the last among them.

    >>> thinned(5, 9).tolist(), thinned(9, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 4, 8])
    """
    return np.unique(np.linspace(0, count - 1, min(count, max(2, most))).round().astype(np.int64))


def packed_curves(table: NDArray[np.float64], share: int) -> dict[str, Any]:
    """Return `(K, m)` scores as float32 bytes, of as many rounds as fit into the share."""
    rounds = thinned(len(table), share // (4 * table.shape[1]))
    kept = table[rounds].astype("<f4")
    return {"rounds": (rounds + 1).tolist(), "bytes": base64.b64encode(kept.tobytes()).decode("ascii")}
