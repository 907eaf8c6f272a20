"""Every client of a run: its score, what it would score alone, whom it listens to; plain values ready for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fedamp.config.metrics import NOT_FINITE, info
from fedamp.report.packing import packed_curves, plain
from fedamp.report.run_scores import Trial, client_names

MOST = 8
"""As many others are listed for each client: those with the largest weights."""
LEAST = 0.0005
"""A smaller weight is not listed: it would read as 0."""


def clients_of(trial: Trial) -> list[dict[str, Any]]:
    """Return what is known of each client whatever the method: name, true group, training samples, what to note."""
    facts, number = trial.facts, trial.scores.shape[1]
    poisoned = set(trial.record.config.get("poisoned") or [])
    columns = (facts.groups, facts.sizes, facts.validation_sizes, facts.test_sizes)
    unknown = [None] * number
    groups, sizes, held_out, test = (column if _fits(column, number) else unknown for column in columns)
    return [
        {
            "name": name,
            "group": groups[i],
            "samples": sizes[i],
            "held_out": held_out[i],
            "test": test[i],
            "note": "poisoned, not counted" if i in poisoned else "",
        }
        for i, name in enumerate(client_names(trial))
    ]


def _fits(column: object, number: int) -> TypeGuard[list[Any]]:
    return isinstance(column, list) and len(column) == number


def run_of(trial: Trial, xi: NDArray[np.float32] | None, separate: Trial | None, share: int) -> dict[str, Any]:
    """Return one run, client by client: xi `(K, m, m)`; `separate` is the run of the same seed that trains alone."""
    scores = np.asarray(trial.summary.per_client)
    alone = _alone(trial, separate)
    return {
        "seed": trial.seed,
        "round": trial.summary.best_round,
        "scores": [_score(value) for value in scores],
        "counted": trial.counted.tolist(),
        "alone": None if alone is None else [_score(value) for value in alone],
        "gain": None if alone is None else gains(scores, alone, info(trial.metric).higher_is_better),
        "curve": packed_curves(trial.scores, share),
        **({} if xi is None else listening(xi[-1])),
    }


def _alone(trial: Trial, separate: Trial | None) -> NDArray[np.float64] | None:
    """Return what each client scores alone: in a run of its own, else beside the method; at the best round."""
    if separate is not None and separate.scores.shape[1] == trial.scores.shape[1]:
        return np.asarray(separate.summary.per_client)
    summary = trial.alone_summary
    return None if summary is None else np.asarray(summary.per_client)


def gains(scores: NDArray[np.float64], alone: NDArray[np.float64], higher: bool) -> list[float | None]:
    """Return by how much each client is better off than alone, in the score's unit; None where one of both is missing.

    >>> gains(np.array([90.0, 80.0, np.nan]), np.array([88.0, 81.0, 70.0]), True)
    [2.0, -1.0, None]
    """
    with np.errstate(invalid="ignore"):
        difference = scores - alone if higher else alone - scores
    return [plain(value) for value in difference]


def listening(xi: NDArray[np.float32]) -> dict[str, Any]:
    """Return from weights `(m, m)`, for each client, how many others it listens to, its own weight, and the largest.

    As in the records, the effective number of clients is 1 / sum_j xi_ij^2, itself counted.
    """
    weights = np.nan_to_num(xi.astype(np.float64))
    with np.errstate(divide="ignore"):
        others = 1 / (weights**2).sum(1) - 1
    return {
        "others": [plain(max(0.0, value)) for value in others],
        "own": [plain(value) for value in weights.diagonal()],
        "listens": [_largest(weights[i], i) for i in range(len(weights))],
        "heard": [_largest(weights[:, i], i) for i in range(len(weights))],
    }


def _largest(weights: NDArray[np.float64], client: int) -> Sequence[tuple[int, float]]:
    """Return the others with the largest weights, `(number, weight)`, the largest first."""
    order = [int(i) for i in np.argsort(-weights, kind="stable") if i != client]
    return [(i, round(float(weights[i]), 4)) for i in order[:MOST] if weights[i] >= LEAST]


def _score(value: float) -> float | str | None:
    """Return a score; None if there is none, a word if it is not finite."""
    return None if np.isnan(value) else plain(value) if np.isfinite(value) else NOT_FINITE
