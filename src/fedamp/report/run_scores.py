"""One run's scores, read from its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.errors import UserError
from fedamp.records.beside_alone import BesideAlone
from fedamp.records.client_names import client_name
from fedamp.records.facts import Facts
from fedamp.records.reading import RunRecord
from fedamp.records.summaries import (
    Summary,
    client_means,
    counted_clients,
    in_unit,
    line_metric,
    score_table,
    summarise,
)
from fedamp.records.take_home import TakeHome

RECEIVED = ("fedavg", "fedprox", "autoamp", "fedbn", "ifca", "cfl")
"""Methods whose result is the model that the server sends; for the others it is the client's own. A copy, which a test
checks: the methods themselves need torch."""


@dataclass(frozen=True)
class Trial:
    """One run's scores: accuracies in percent, or errors in the target's unit."""

    record: RunRecord
    metric: str
    table: NDArray[np.float64]  # (K, m), of the models that count; accuracies from 0 to 1
    counted: NDArray[np.bool_]  # (m,); a poisoned client enters no mean, nor does one that never came
    entry: str = "own"  # which models they are

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.record.config["seed"])

    @property
    def facts(self) -> Facts:
        """What the run noted about its data; nothing is known if it has no result."""
        return self.record.facts

    @property
    def seconds(self) -> float:
        """How long the run took; of one that has no result, its rounds so far."""
        result = self.record.result or {}
        # What was trained as another method and only scored differently took as long as that one.
        seconds = None if "trained_as" in result else result.get("seconds")
        return float(sum(line.get("seconds") or 0 for line in self.record.lines) if seconds is None else seconds)

    @property
    def warnings(self) -> list[str]:
        """The run's warnings, each once."""
        warnings = (self.record.result or {}).get("warnings")
        if warnings is None:
            warnings = [event for line in self.record.lines for event in line.get("events") or []]
        return list(dict.fromkeys(str(each) for each in warnings))

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """Every client's score after every round, `(K, m)`."""
        return in_unit(self.table, self.metric)

    @cached_property
    def summary(self) -> Summary:
        """The summary of the scores."""
        return summarise(self.table, self.metric, self.counted.tolist())

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean over the counted clients after every round, `(K,)`."""
        return client_means(self.scores, self.counted)

    @property
    def without_score(self) -> list[str]:
        """Clients whose test samples do not define the metric, by name."""
        names, undefined = self.facts.names, self.facts.undefined or []
        return [client_name(i, names) for i in undefined]

    @property
    def withheld(self) -> list[str]:
        """Silos that keep their scores at home, by name."""
        return [client_name(i, self.facts.names) for i in self.facts.withheld or []]

    @cached_property
    def round_seconds(self) -> list[float]:
        """How long each round that was played took."""
        return [float(line["seconds"]) for line in played_lines(self.record)]

    @cached_property
    def traffic(self) -> list[tuple[float, float]]:
        """The bytes that travelled in each round, up to the server and down from it; empty if that was not noted."""
        noted = [line["bytes"] for line in self.record.lines if "bytes" in line]
        return [(float(each["up"]), float(each["down"])) for each in noted]

    @cached_property
    def loss_means(self) -> NDArray[np.float64]:
        """The mean test loss over the counted clients after every round, `(K,)`; empty if it was not noted."""
        noted = any("loss" in scores for line in self.record.lines for scores in line.get("test", {}).values())
        table = score_table(self.record.lines, self.entry, "loss") if noted else np.empty((0, 0))
        return client_means(table, self.counted) if table.shape == self.table.shape else np.empty(0)

    @cached_property
    def alone_summary(self) -> Summary | None:
        """The summary of the models trained alone beside the method; None if there are none."""
        table = score_table(self.record.lines, "alone", self.metric)
        return summarise(table, self.metric, self.counted.tolist()) if table.shape == self.table.shape else None

    @cached_property
    def take_home(self) -> TakeHome | None:
        """What held-out samples chose for the clients; None if none were held out."""
        home = (self.record.result or {}).get("take_home")
        without = [*(self.facts.undefined or ()), *(self.facts.withheld or ())]
        return None if home is None else TakeHome.of(home, self.metric, without)

    @property
    def validated(self) -> float | None:
        """The mean of the models that count, in the round in which they do best on all held-out samples together."""
        home = self.take_home
        if home is not None and home.entry == self.entry:
            return home.mean  # the very models: in a round's line an absent client has the score of another
        one = None if home is None else home.held_out.get(self.entry)
        return None if one is None or one.round > len(self.means) else float(self.means[one.round - 1])

    @property
    def per_client(self) -> NDArray[np.float64]:
        """Scores of the counted clients at the best round."""
        return np.asarray(self.summary.per_client)[self.counted]


def read_trial(run: RunRecord) -> Trial | None:
    """Return a run's scores, or None if no round has been scored yet."""
    try:
        metric = _metric(run)
        entry = _entry(run, metric)
        table = score_table(run.lines, entry, metric)
        if not table.size:
            entry, table = "own", score_table(run.lines, "own", metric)
        if not table.size:
            return None
        counted = np.array(counted_clients(table.shape[1], run.config.get("poisoned") or []))
        came = ~np.isnan(table).all(0)  # of a federation over real machines; its result leaves the others out too
        counted = counted & came if (counted & came).any() else counted
        _check_result(run, table.shape[1])
        trial = Trial(run, metric, table, counted, entry)
        # What is damaged is found here.
        _ = trial.take_home, trial.alone_summary, trial.loss_means, trial.traffic, trial.round_seconds
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{run.path} can't be read ({' '.join(repr(error).split())}); the folder is damaged; leave it out"
        ) from None
    return trial


def _check_result(run: RunRecord, num_clients: int) -> None:
    result = run.result or {}
    facts, warnings = result.get("facts") or {}, result.get("warnings") or []
    if not isinstance(facts, Mapping):
        raise TypeError(f"facts is a {type(facts).__name__}, not a table")
    if not isinstance(warnings, list):
        raise TypeError(f"warnings is a {type(warnings).__name__}, not a list")
    for name in ("groups", "sizes", "names"):
        values = facts.get(name)
        if values is not None and not (isinstance(values, list) and len(values) == num_clients):
            raise TypeError(f"{name} is not a list with one entry per client")
    if "alone" in result and len(BesideAlone.of(result["alone"]).home.test) != num_clients:
        raise TypeError("alone does not have one entry per client")


def _metric(run: RunRecord) -> str:
    metric = (run.result or {}).get("metric")
    if metric is None:
        scored = [scores for line in run.lines for scores in line.get("test", {}).values()]
        metric = line_metric(scored[0] if scored else {})
    return str(metric)


def _entry(run: RunRecord, metric: str) -> str:
    """Return which models count: as the result says, else those its numbers come from, else by the method's name."""
    result = run.result or {}
    if isinstance(result.get("scored"), str):
        return str(result["scored"])
    usual = "received" if run.config["method"]["name"] in RECEIVED else "own"
    best, scores = result.get("best_round"), result.get("per_client")
    if best is None or scores is None:
        return usual
    scores = [np.inf if score is None else score for score in scores]  # JSON has null for what is not finite
    for entry in (usual, "own" if usual == "received" else "received"):
        table = in_unit(score_table(run.lines, entry, metric), metric)
        if len(table) >= best and np.allclose(table[best - 1], scores, equal_nan=True):
            return entry
    return usual


def client_names(trial: Trial) -> list[str]:
    """Return the silos' names, or numbers if they have none."""
    num_clients = trial.scores.shape[1]
    names = trial.facts.names
    if names is not None and len(names) == num_clients:
        return [str(name) for name in names]
    return [f"client {number}" for number in range(num_clients)]


def played_lines(record: RunRecord) -> list[dict[str, Any]]:
    """Return the lines of the rounds that took time: the first models, and the last ones sent, have lines too."""
    return [line for line in record.lines if line["round"] >= 1 and line.get("seconds")]


def rounds_played(record: RunRecord) -> int:
    """Return how many rounds a run has behind it."""
    return len(played_lines(record))
