"""One run's scores, as its folder tells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.errors import UserError
from fedamp.records.metrics import Summary, counted_clients, score_table, summarise
from fedamp.records.reading import RunRecord

RECEIVED = ("fedavg", "fedprox")
"""Methods whose result is the model that the server sends; for the others it is the client's own."""


@dataclass(frozen=True)
class Trial:
    """One run's scores: accuracies in percent, or errors in the target's unit."""

    record: RunRecord
    metric: str
    scores: NDArray[np.float64]  # (K, m), of the models that count
    counted: NDArray[np.bool_]  # (m,); a poisoned client enters no mean, nor does one that never came

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.record.config["seed"])

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the run noted of its data; empty where it did not end."""
        facts: Mapping[str, Any] = (self.record.result or {}).get("facts") or {}
        return facts

    @property
    def seconds(self) -> float:
        """How long the run took; of one that did not end, its rounds so far."""
        result = self.record.result or {}
        # What was trained as another method, and scored elsewhere, took as long as that one.
        told = None if "trained_as" in result else result.get("seconds")
        return float(sum(line.get("seconds") or 0 for line in self.record.lines) if told is None else told)

    @property
    def warnings(self) -> list[str]:
        """What the run warned of, each once."""
        told = (self.record.result or {}).get("warnings")
        if told is None:
            told = [event for line in self.record.lines for event in line.get("events") or []]
        return list(dict.fromkeys(str(each) for each in told))

    @cached_property
    def summary(self) -> Summary:
        """What the scores come to."""
        # summarise gives percent for what it takes as fractions
        table = self.scores / 100 if self.metric == "accuracy" else self.scores
        return summarise(table, self.metric, self.counted.tolist())

    @property
    def per_client(self) -> NDArray[np.float64]:
        """Scores at the best round of the clients that count."""
        return np.asarray(self.summary.per_client)[self.counted]


def read_trial(run: RunRecord) -> Trial | None:
    """Return a run's scores, or None where no round was scored yet."""
    try:
        metric = _metric(run)
        scores = score_table(run.lines, _entry(run, metric), metric)
        if not scores.size:
            scores = score_table(run.lines, "own", metric)
        if not scores.size:
            return None
        counted = np.array(counted_clients(scores.shape[1], run.config.get("poisoned") or []))
        came = ~np.isnan(scores).all(0)  # of a federation over real machines; the result leaves the others out too
        counted = counted & came if (counted & came).any() else counted
        _check_result(run, scores.shape[1])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{run.path} can't be read ({' '.join(repr(error).split())}); the folder is damaged, leave it out"
        ) from None
    return Trial(run, metric, 100 * scores if metric == "accuracy" else scores, counted)


def _check_result(run: RunRecord, num_clients: int) -> None:
    result = run.result or {}
    facts, told = result.get("facts") or {}, result.get("warnings") or []
    if not (isinstance(facts, Mapping) and isinstance(told, list)):
        raise TypeError("facts or warnings of the result are none")
    for name in ("groups", "sizes", "names"):
        values = facts.get(name)
        if values is not None and not (isinstance(values, list) and len(values) == num_clients):
            raise TypeError(f"{name} are not one a client")


def _metric(run: RunRecord) -> str:
    told = (run.result or {}).get("metric")
    if told is None:
        scored = [scores for line in run.lines for scores in line.get("test", {}).values()]
        told = "rmse" if scored and "rmse" in scored[0] else "accuracy"
    return str(told)


def _entry(run: RunRecord, metric: str) -> str:
    """Return which models count: as the result says, else those that its numbers are of, else by the method's name."""
    result = run.result or {}
    if isinstance(result.get("scored"), str):
        return str(result["scored"])
    usual = "received" if run.config["method"]["name"] in RECEIVED else "own"
    best, told = result.get("best_round"), result.get("per_client")
    if best is None or told is None:
        return usual
    told = [np.inf if score is None else score for score in told]  # JSON has null for what is not finite
    for entry in (usual, "own" if usual == "received" else "received"):
        table = score_table(run.lines, entry, metric) * (100 if metric == "accuracy" else 1)
        if len(table) >= best and np.allclose(table[best - 1], told, equal_nan=True):
            return entry
    return usual
