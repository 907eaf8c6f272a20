"""What a client gets that joins a finished run: its models' test scores beside those of training alone.

`alone` is trained for as many steps as the newcomer, from the same first model. `received` is what the server makes for
it from the run's models, `own` what it makes of that. Which it takes home is chosen as in a run: by held-out samples,
if there are any, else by the method; so is the round of each of them, else it is the last. Test samples choose nothing.
Needs only numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.config.metrics import UNDEFINED, info
from fedamp.records.beside_alone import LEVEL, paired_p, sign_test
from fedamp.records.summaries import finite
from fedamp.records.take_home import WORDS

COLUMNS = ("alone", "received", "own", "chosen")
"""The models that are scored, in the order in which they are shown."""
MOST = 5
"""As many of those that a newcomer listens to are named."""
FEW = 30
"""Test rows below which a sentence says that they are few."""
LEAST = 0.005
"""A weight below this is not worth naming."""


@dataclass(frozen=True)
class Newcomer:
    """One newcomer's scores on its own test rows, as shown: accuracies in percent, or errors. None: not finite."""

    name: str
    metric: str
    rounds: int  # that it played
    samples: int  # that it trained on
    tested: int  # test rows
    alone: float | None
    received: float | None  # None too if the method sends no model
    own: float | None
    chosen: float | None
    entry: str  # which one it takes home: own, received, or the midpoint `between` them
    round: int  # and of which of its rounds
    better: int  # test rows that what it takes home answers better than alone does
    worse: int
    error: float | None = None  # standard error of `gain` over the rows; None if it is not known for the metric
    weights: Mapping[str, float] | None = None  # behind what it takes home, by name, its own too
    p: float | None = None  # two-sided: how likely the two models would differ so much if they were equally good

    @property
    def gain(self) -> float | None:
        """By how much it does better than alone; below 0 it does worse."""
        if self.chosen is None or self.alone is None:
            return None
        return (self.chosen - self.alone) * (1 if info(self.metric).higher_is_better else -1)

    @property
    def verdict(self) -> str:
        """Whether joining pays, in a sentence; with few rows that cannot be told."""
        p = (
            two_sided(sign_test(self.better, self.worse), sign_test(self.worse, self.better))
            if self.p is None
            else self.p
        )
        if self.better == self.worse == 0 and self.tested >= FEW and self.gain is not None:
            found = "joining changes nothing"
        elif p > LEVEL or not self.gain:
            found = "whether joining pays can't be told"
        else:
            found = "joining pays" if self.gain > 0 else "joining does not pay"
        rows = "1 test row" if self.tested == 1 else f"{self.tested} test rows"
        few = "; so few rows say little" if self.tested < FEW else ""
        return f"{found}: {self._by_how_much()} on {rows} (better on {self.better}, worse on {self.worse}{few})"

    def _by_how_much(self) -> str:
        if self.gain is None:
            return "no score to compare"
        metric = info(self.metric)
        unit = "points" if metric.unit == "%" else f"in {metric.short}"
        digits = ".1f" if metric.unit == "%" else ".4g"
        error = "" if self.error is None or self.tested < 2 else f" ± {self.error:{digits}}"
        return f"{self.gain:+{digits}}{error} {unit}"

    def listens_to(self) -> list[tuple[str, float]]:
        """Return the largest weights, by name, its own left out."""
        others = [(name, weight) for name, weight in (self.weights or {}).items() if name != self.name]
        return [each for each in sorted(others, key=lambda each: -each[1])[:MOST] if each[1] >= LEAST]

    def listening(self) -> str | None:
        """Return whom it listens to in words; None if the method has no weights."""
        if self.weights is None:
            return None
        itself = f"itself {self.weights.get(self.name, 0.0):.0%}"
        named = [f"{name} {weight:.0%}" for name, weight in self.listens_to()]
        rest = 1 - sum(weight for _, weight in self.listens_to()) - self.weights.get(self.name, 0.0)
        others = [f"all others {rest:.0%}"] if rest >= LEAST else []
        return ", ".join([*named, *others, itself]) if named or others else "nobody but itself"

    @property
    def takes_home(self) -> str:
        """What it takes home, in words."""
        return f"{WORDS[self.entry]}, of its round {self.round}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as in result.json; what can be read from the others is there for people."""
        values = asdict(self)
        values["weights"] = None if self.weights is None else dict(self.weights)
        return {**{name: finite(value) for name, value in values.items()}, "verdict": self.verdict}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Newcomer:
        """Return what `to_dict` gave."""
        return cls(**{name: value for name, value in values.items() if name != "verdict"})


def two_sided(one: float, other: float) -> float:
    """Return a two-sided p from the two one-sided ones."""
    return min(1.0, 2 * min(one, other))


def difference_p(metric: str, home: NDArray[np.float64], alone: NDArray[np.float64]) -> float:
    """Return how likely the errors of two equally good models on the same rows would differ as much, either way."""
    return two_sided(paired_p(metric, home, alone, 0), paired_p(metric, alone, home, 0))


def paired(metric: str, home: NDArray[np.float64], alone: NDArray[np.float64]) -> tuple[int, int, float | None]:
    """Return on how many rows home, and on how many alone, is better, and the standard error of the gain.

    From the errors of both on the same rows: 1 if the answer is wrong, or squared. The gain in accuracy is a mean of
    paired differences; that in RMSE depends on two means, each by 1 / (2 RMSE).
    """
    home, alone = (np.where(np.isnan(errors), np.inf, errors) for errors in (home, alone))
    better, worse = int((home < alone).sum()), int((alone < home).sum())
    if metric not in ("accuracy", "rmse") or len(home) < 2 or not np.isfinite([home, alone]).all():
        return better, worse, None
    if metric == "rmse":
        roots = [math.sqrt(errors.mean()) for errors in (home, alone)]
        if not all(roots):
            return better, worse, None
        home, alone = (errors / (2 * root) for errors, root in zip((home, alone), roots, strict=True))
    error = float((alone - home).std(ddof=1) / math.sqrt(len(home)))
    return better, worse, info(metric).factor * error


@dataclass(frozen=True)
class Newcomers:
    """All clients that were kept out of a run and joined it afterwards, each by itself."""

    each: tuple[Newcomer, ...]

    @property
    def metric(self) -> str:
        """What they are scored by."""
        return self.each[0].metric

    def mean(self, column: str) -> float | None:
        """Return the mean over the newcomers of one of COLUMNS; None if a model is not finite, or nobody has one.

        By a metric like AUC a model that is not finite has a score, too: who has none has rows that define none, and
        enters no mean.
        """
        values = [getattr(one, column) for one in self.each]
        known = [value for value in values if value is not None]
        if not known or (len(known) < len(values) and info(self.metric).text(None) != UNDEFINED):
            return None
        return float(np.mean(known))

    @property
    def better(self) -> int:
        """How many do better than alone; a newcomer whose model is not finite does not."""
        return sum(1 for one in self.each if one.gain is not None and one.gain > 1e-9)

    @property
    def worse(self) -> int:
        """How many do worse than alone."""
        return sum(1 for one in self.each if (one.chosen is None and one.alone is not None) or (one.gain or 0) < -1e-9)

    def headline(self) -> str:
        """Return the finding in one line."""
        metric = info(self.metric)
        means = [f"{column} {metric.named(value)}" for column in COLUMNS if (value := self.mean(column)) is not None]
        count = "1 newcomer" if len(self.each) == 1 else f"{len(self.each)} newcomers"
        return f"{count}: {', '.join(means)}; better than alone {self.better}, worse {self.worse}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as in result.json."""
        means = {column: finite(self.mean(column)) for column in COLUMNS}
        return {**means, "better": self.better, "worse": self.worse, "each": [one.to_dict() for one in self.each]}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Newcomers:
        """Return what `to_dict` gave."""
        return cls(tuple(Newcomer.of(one) for one in values["each"]))


def named(weights: Sequence[float], names: Sequence[str]) -> dict[str, float]:
    """Return weights by name."""
    return dict(zip(names, weights, strict=True))
