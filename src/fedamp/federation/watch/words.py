"""Numbers as the live pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedamp.config.metrics import info

MOST_POINTS = 400
"""Points of a curve that are sent; if there are more, rounds are left out."""


def score_text(score: float | None, metric: str) -> str:
    """Return a score as people read it: accuracies, from 0 to 1, in percent.

    >>> score_text(0.9712, "accuracy"), score_text(0.51239, "rmse"), score_text(None, "rmse")
    ('97.12\\xa0%', '0.5124', '–')
    """
    if score is None:
        return "–"
    about = info(metric)
    return about.text(about.factor * score).replace(" ", "\N{NO-BREAK SPACE}")


def duration(seconds: float) -> str:
    """Return a time span in words, as precise as a guess deserves.

    >>> duration(42.4), duration(400), duration(8000), duration(300000)
    ('42 s', '7 min', '2 h 13 min', '3.5 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 48 * 60 else f"{minutes / 60 / 24:.1f} days"


def series(name: str, rounds: Sequence[int] | ArrayLike, scores: ArrayLike) -> dict[str, Any]:
    """Return a curve over rounds for JSON, of as many points as a page needs; None for what is not finite."""
    x, y = np.asarray(rounds), np.asarray(scores, dtype=np.float64)
    keep = np.unique(np.linspace(0, max(0, len(x) - 1), min(len(x), MOST_POINTS)).round().astype(int))
    points = [(int(x[i]), float(y[i])) for i in keep]
    return {
        "name": name,
        "x": [k for k, _ in points],
        "y": [round(v, 4) if np.isfinite(v) else None for _, v in points],
    }
