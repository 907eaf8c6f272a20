"""Scores over clients and rounds, and their summary: the one place that computes them. Needs only numpy.

A round's line in the record holds what was scored while it was played: `own`, after the local training, and
`received`, the model that the server had sent. The latter was made by the round before, and is counted there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.config.metrics import info

Line = Mapping[str, Any]


def score_table(lines: Sequence[Line], entry: str, metric: str = "accuracy", on: str = "test") -> NDArray[np.float64]:
    """Return the metric of every client after every round, `(K, m)`, of the models named `entry`.

    An absent client (None) keeps its last known value; `lines` begins with round 0, the first models, where all are
    known but those whose samples do not define the metric: they have none in any round (nan). A score that is not
    finite is written as "inf", and is the worst that there is.
    """
    shift = 1 if entry == "received" else 0
    table: list[NDArray[np.float64]] = []
    last: NDArray[np.float64] | None = None
    for line in lines:
        scores = line.get(on, {}).get(entry)
        if scores is None:
            continue
        now = np.array([recorded_score(value, metric) for value in scores[metric]], dtype=np.float64)
        last = now if last is None else np.where(np.isnan(now), last, now)
        if line["round"] - shift >= 1:
            table.append(last)
    return np.array(table) if table else np.empty((0, 0))


def recorded_score(value: float | str | None, metric: str) -> float:
    """Return a score of a line: nan for None, and for "inf" the worst that there is.

    >>> recorded_score("inf", "rmse"), recorded_score("inf", "r2"), recorded_score(0.5, "auc")
    (inf, -inf, 0.5)
    """
    if value is None:
        return np.nan
    return float(value) if value != "inf" else -np.inf if info(metric).higher_is_better else np.inf


def kept_scores(values: Sequence[float | None], metric: str, undefined: Collection[int] = ()) -> list[float]:
    """Return scores of a result.json: None is nan for the clients that are `undefined`, else the worst that there is.

    >>> kept_scores([0.5, None, None], "auc", undefined=[1])
    [0.5, nan, -inf]
    """
    worst = recorded_score("inf", metric)
    return [np.nan if i in undefined else worst if value is None else value for i, value in enumerate(values)]


def line_metric(scores: Mapping[str, Any]) -> str:
    """Return which metric the scores of a line are by: all that stands there besides it is the loss."""
    return next((name for name in scores if name != "loss"), "accuracy")


@dataclass(frozen=True)
class Summary:
    """One run's result: accuracies in percent, errors in the target's unit; a client without a score has nan."""

    metric: str  # its name in `config.metrics`
    best: float  # the best, over the rounds, of the mean over the clients; for accuracies this is BMTA
    best_round: int
    last: float  # mean after the last round
    per_client: list[float]  # at the best round
    worst: float  # the worst client at the best round
    tenth: float  # the client that nine in ten do better than, at the best round

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a record; None for what is not finite."""
        bmta = self.best if self.metric == "accuracy" else None
        return {name: finite(value) for name, value in {**vars(self), "bmta": bmta}.items()}


def counted_clients(num_clients: int, poisoned: Collection[int]) -> list[bool]:
    """Return who enters the means: all but the poisoned clients, whose own scores do not matter."""
    return [number not in poisoned for number in range(num_clients)]


def higher_is_better(metric: str) -> bool:
    """Whether a higher score is the better one: it is for accuracies, not for errors."""
    return info(metric).higher_is_better


def in_unit(scores: NDArray[np.float64], metric: str) -> NDArray[np.float64]:
    """Return scores as people see them: accuracies, from 0 to 1, in percent; errors as they are."""
    return info(metric).factor * scores if info(metric).factor != 1 else scores


def client_means(table: NDArray[np.float64], counted: Sequence[bool] | NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the mean of each round's scores `(K, m)` over the counted clients that have any; nan if nobody has."""
    mask = np.asarray(counted, dtype=bool) & with_scores(table)
    if not mask.any():
        return np.full(len(table), np.nan)
    means: NDArray[np.float64] = table[:, mask].mean(1)
    return means


def with_scores(table: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which clients have a score in some round of `(K, m)`: of the others, samples do not define the metric."""
    return np.asarray(~np.isnan(table).all(0), dtype=bool)


def mean_of_known(scores: Sequence[float]) -> float:
    """Return the mean over those who have a score; nan if nobody has."""
    known = [score for score in scores if not np.isnan(score)]
    return float(np.mean(known)) if known else float("nan")


def line_mean(line: Line, entry: str, poisoned: Collection[int] = ()) -> tuple[float, str] | None:
    """Return the mean over the counted clients that are present in one round, and its metric; None if not scored."""
    scores = line.get("test", {}).get(entry, {})
    metric = line_metric(scores)
    counted = [value for number, value in enumerate(scores.get(metric, [])) if number not in poisoned]
    known = [recorded_score(value, metric) for value in counted if value is not None]
    return (sum(known) / len(known) * info(metric).factor, metric) if known else None


def summarise(table: NDArray[np.float64], metric: str = "accuracy", counted: Sequence[bool] | None = None) -> Summary:
    """Return the summary of `(K, m)` scores; clients that are not `counted`, or have no score, enter no mean.

    Accuracies, from 0 to 1, are best when highest, and given in percent; errors are best when lowest.
    """
    higher = higher_is_better(metric)
    table = in_unit(table, metric)
    mask = with_scores(table) if counted is None else np.asarray(counted, dtype=bool) & with_scores(table)
    if not mask.any():
        nobody = float("nan")
        return Summary(metric, nobody, 1, nobody, [nobody] * table.shape[1], nobody, nobody)
    means = client_means(table, mask)
    best = int(np.nanargmax(means) if higher else np.nanargmin(means)) if np.isfinite(means).any() else 0
    clients = table[best][mask]
    with np.errstate(invalid="ignore"):  # there is no number between two errors that are not finite
        tenth = float(np.percentile(clients, 10 if higher else 90))
    if np.isnan(tenth) and not np.isnan(clients).any():
        tenth = -np.inf if higher else np.inf
    return Summary(
        metric=metric,
        best=float(means[best]),
        best_round=best + 1,
        last=float(means[-1]),
        per_client=[float(value) for value in table[best]],
        worst=float(clients.min() if higher else clients.max()),
        tenth=tenth,
    )


def spread(
    values: Sequence[float], who: Sequence[int], num_clients: int, broken: str | None = None
) -> list[float | str | None]:
    """Return values of some clients as a list over all: None for the others and for nan, `broken` for the infinite."""
    over_all: list[float | str | None] = [None] * num_clients
    for i, value in zip(who, values, strict=True):
        over_all[i] = value if np.isfinite(value) else None if np.isnan(value) else broken
    return over_all


def finite(value: Any) -> Any:
    """Return a number, or the numbers of a list or table, with None for what is not finite, which JSON cannot hold."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    if isinstance(value, Mapping):
        return {name: finite(entry) for name, entry in value.items()}
    return value


def worse_off(per_client: Sequence[float], alone: Sequence[float], higher_is_better: bool = True) -> int:
    """Return how many clients do worse than by training alone; one that fails both ways does not."""
    mine, other = np.asarray(per_client, dtype=np.float64), np.asarray(alone, dtype=np.float64)
    gain = np.subtract(mine, other, where=mine != other, out=np.zeros(len(mine)))
    return int(((gain if higher_is_better else -gain) < -1e-9).sum())  # without a score (nan) nobody is worse off
