"""What the clients take home: `own` (w), `received` (u) or the midpoint `between` them, and of which round.

Or `then_alone`: what each has made of the best of these by going on alone after the last round (`runs.then_alone`).

Held-out samples choose, never test samples: one choice for all clients, by the score on everyone's held-out samples
together. A choice for each client would rest on its own few: with two samples it is little better than a coin. The
choice is a function of the rounds' lines alone, so that a run and a federation's server decide alike. Needs only numpy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.config.metrics import info
from fedamp.records.summaries import Line, finite, higher_is_better, in_unit, kept_scores, mean_of_known, recorded_score

ENTRIES = ("own", "received", "between")
"""The models that a round has."""

THEN_ALONE = "then_alone"
CANDIDATES = (*ENTRIES, THEN_ALONE)
"""The models to choose from; of equally good ones that are not the method's own, the first."""

WORDS = {
    "own": "own model w",
    "received": "received model u",
    "between": "midpoint of w and u",
    THEN_ALONE: "own model, trained on alone",
}
SYMBOLS = {"own": "w", "received": "u", "between": "midpoint", THEN_ALONE: "then alone"}

SCORED, CHOSEN = "scored", "chosen"
"""What a run's clients take home: the models that the method is scored by, or those that held-out samples choose."""


@dataclass(frozen=True)
class Candidate:
    """One entry's models of one round, scored on all clients' held-out samples together."""

    entry: str
    round: int  # that made them
    score: float
    loss: float


def pooled(scores: NDArray[np.float64], losses: NDArray[np.float64], sizes: Sequence[int], metric: str) -> list[float]:
    """Return score and loss on all held-out samples together, from those of each client, `(m,)`, on its own.

    A client counts by its samples; one of size 0 does not, nor does one whose samples do not define the metric: it has
    a loss and no score. Means are weighted by the sizes, of errors (RMSE) it is the squares. An AUC, an F1 or an R2 of
    all samples does not follow from the clients' own: for them the weighted mean stands, since silos send no outputs,
    and a federation must choose as a run does. One unknown value (nan) makes the result unknown.
    """
    weights = np.asarray(sizes, dtype=np.float64)
    counts = (weights > 0) & ~(np.isnan(scores) & ~np.isnan(losses))
    power = info(metric).power
    if not counts.any():
        return [math.nan, math.nan]
    with np.errstate(over="ignore"):
        mean, loss = (np.average(values[counts], weights=weights[counts]) for values in (scores**power, losses))
    return [float(mean ** (1 / power)), float(loss)]


def told_apart(score: float) -> float:
    """Return a score to twelve digits: equal counts of right answers, summed in another order, differ in the last."""
    return float(f"{score:.12g}")


@dataclass(frozen=True)
class HeldOut:
    """What the held-out samples have said up to a round: the best candidate of each entry."""

    sizes: tuple[int, ...]  # held-out samples of each client; 0 for one that does not count
    metric: str
    scored: str  # the method's own entry: it is taken if another is only as good
    last: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)  # by entry: last known scores and losses
    best: Mapping[str, Candidate] = field(default_factory=dict)  # by entry

    def after(self, line: Line) -> HeldOut:
        """Return what they say after one more line.

        An absent client keeps its last known value. As long as a counted client has none, and where a score is not
        finite, there is no candidate. What is received in a round was made by the round before; what was there before
        the first round is nobody's result.
        """
        last, best = dict(self.last), dict(self.best)
        for entry in CANDIDATES:
            found = line.get("validation", {}).get(entry)
            if found is None or not any(self.sizes):
                continue
            last[entry] = now = _known(found, self.metric, last.get(entry), line.get("refused", ()))
            made = line["round"] - (1 if entry == "received" else 0)
            one = Candidate(entry, made, *pooled(now[0], now[1], self.sizes, self.metric))
            if made >= 1 and math.isfinite(one.score):
                best[entry] = max(best.get(entry, one), one, key=self._rank)
        return replace(self, last=last, best=best)

    def over(self, lines: Iterable[Line]) -> HeldOut:
        """Return what they say after these lines."""
        said = self
        for line in lines:
            said = said.after(line)
        return said

    @property
    def choice(self) -> Candidate | None:
        """The best of all: by score, then loss, then the method's own entry, then the earlier round."""
        return max((self.best[entry] for entry in CANDIDATES if entry in self.best), key=self._rank, default=None)

    def _rank(self, one: Candidate) -> tuple[float, float, bool, int]:
        score, loss = told_apart(one.score), told_apart(one.loss)
        sign = 1 if higher_is_better(self.metric) else -1
        return sign * score, -loss, one.entry == self.scored, -one.round


def _known(
    found: Mapping[str, Any], metric: str, last: NDArray[np.float64] | None, refused: Collection[str]
) -> NDArray[np.float64]:
    """Return scores and losses `(2, m)`; those of a client that is absent, or was refused, are its last ones, or nan.

    A loss that is not finite is written as None, like that of an absent client, who has no score either. A client with
    a loss and no score is there, and its samples do not define the metric.
    """
    scores = np.array([recorded_score(value, metric) for value in found[metric]])
    losses = np.array([np.inf if value is None else float(value) for value in found["loss"]])
    now = np.stack([scores, losses])
    absent = np.isnan(scores) & np.isinf(losses) | np.array([str(i) in refused for i in range(len(scores))])
    now[:, absent] = np.nan if last is None else last[:, absent]
    return now


@dataclass(frozen=True)
class TakeHome:
    """The choice, as result.json has it: accuracies in percent, or errors in the target's unit."""

    rule: str  # what this run's clients take home: "scored" or "chosen"
    entry: str  # the choice
    round: int
    mean: float  # of the chosen models' test scores, over the counted clients
    scores: list[float]  # the chosen models' test scores, of each client
    held_out: Mapping[str, Candidate]  # each entry's best round, with its score on all held-out samples together

    @classmethod
    def of_choice(cls, rule: str, said: HeldOut, scores: Sequence[float]) -> TakeHome:
        """Return the choice that the held-out samples made, with the test scores, as shown, of the chosen models."""
        assert said.choice is not None, "nothing was chosen"
        shown = {
            entry: replace(one, score=float(in_unit(np.array(one.score), said.metric)))
            for entry, one in said.best.items()
        }
        counted = [score for score, size in zip(scores, said.sizes, strict=True) if size > 0]
        return cls(rule, said.choice.entry, said.choice.round, mean_of_known(counted), list(scores), shown)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; None for what is not finite."""
        values: dict[str, Any] = finite(asdict(self))
        return values

    @classmethod
    def of(cls, values: Mapping[str, Any], metric: str, undefined: Collection[int] = ()) -> TakeHome:
        """Return what `to_dict` gave; `undefined` are clients without a score."""
        held_out = {
            entry: Candidate(
                entry, one["round"], *kept_scores([one["score"]], metric), *kept_scores([one["loss"]], "log-loss")
            )
            for entry, one in values["held_out"].items()
        }
        scores, mean = kept_scores(values["scores"], metric, undefined), kept_scores([values["mean"]], metric)[0]
        return cls(values["rule"], values["entry"], values["round"], mean, scores, held_out)
