"""What a run's rounds come to: numbers over clients and rounds. Needs numpy alone.

A round's line in the record holds what was scored while it was played: `own`, after the local training, and
`received`, the model that the server had sent. That one was made by the round before; here it is counted there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Line = Mapping[str, Any]


def accuracies(lines: Sequence[Line], entry: str, on: str = "test") -> NDArray[np.float64]:
    """Return the accuracy of every client after every round, `(K, m)`, of the models named `entry`.

    An absent client has its last known value; `lines` begins with round 0, the first models, where all are known.
    """
    shift = 1 if entry == "received" else 0
    table: list[NDArray[np.float64]] = []
    last: NDArray[np.float64] | None = None
    for line in lines:
        scores = line.get(on, {}).get(entry)
        if scores is None:
            continue
        now = np.array([np.nan if value is None else value for value in scores["accuracy"]], dtype=np.float64)
        last = now if last is None else np.where(np.isnan(now), last, now)
        if line["round"] - shift >= 1:
            table.append(last)
    return np.array(table) if table else np.empty((0, 0))


@dataclass(frozen=True)
class Summary:
    """One method's result, in percent."""

    bmta: float  # the best, over the rounds, of the mean over the clients
    best_round: int
    last: float  # mean after the last round
    per_client: list[float]  # at the best round
    worst: float  # the worst client at the best round
    tenth: float  # 10th percentile of the clients at the best round


def summarise(table: NDArray[np.float64]) -> Summary:
    """Return what `(K, m)` accuracies, each 0 to 1, come to."""
    means = table.mean(1)
    best = int(means.argmax())
    clients = 100 * table[best]
    return Summary(
        bmta=float(100 * means[best]),
        best_round=best + 1,
        last=float(100 * means[-1]),
        per_client=[float(value) for value in clients],
        worst=float(clients.min()),
        tenth=float(np.percentile(clients, 10)),
    )


def worse_off(per_client: Sequence[float], alone: Sequence[float]) -> int:
    """Return how many clients have a lower accuracy than by training alone."""
    return int((np.asarray(per_client) < np.asarray(alone) - 1e-9).sum())
