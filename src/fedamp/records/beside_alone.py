"""Who is worse off than alone: what held-out samples say about it, how sure that is, and that in words.

Two models answer the same held-out samples of a client. Where they do equally well, nothing is learned. If they were
equally good, each would be the better one on half of the others: the exact sign test (McNemar's, for right and wrong
answers), one-sided, which holds for a handful of samples too. For metrics that do not count samples (log loss, AUC,
F1) a sample speaks by its part in the difference of the two scores, and the sign of each part is a fair coin's: a few
positive samples weigh as much as many negative ones, and are as uncertain as few. Over the clients, p is adjusted
(Benjamini and Hochberg 1995): of the clients named, a share of at most LEVEL is expected to be named by chance; where
nobody is worse off, anybody is named with about that probability: the two models were chosen on the same samples,
which helps both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedamp import seeds
from fedamp.config.metrics import RANKS, SIGN, info
from fedamp.records.client_names import client_name
from fedamp.records.summaries import higher_is_better
from fedamp.records.take_home import pooled

T = TypeVar("T")

FLIPS, AT_ONCE = 4095, 256
"""How often signs are drawn, and how many draws are held in memory at once."""

LEVEL = 0.05
"""The share of false warnings that is put up with."""

Errors = Sequence[NDArray[np.float64]]
"""For each client, the errors of one model on the client's held-out samples."""


@dataclass(frozen=True)
class Models:
    """Every client's model of one kind: the round that made them, and their scores; None for what is not finite."""

    round: int
    test: list[float | None]
    validation: list[float | None] | None  # None if nothing was held out


@dataclass(frozen=True)
class BesideAlone:
    """What the clients take home against what each has trained alone. Accuracies in percent, or errors."""

    metric: str
    home: Models
    alone: Models
    samples: list[int] | None = None  # of each client, held out for validation
    p: list[float] | None = None  # adjusted: how likely alone is better so often if the two are equally good
    worse_off: tuple[int, ...] = ()  # clients for whom that is at most LEVEL
    uncounted: tuple[int, ...] = ()  # the poisoned: in no mean, and never worse off

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> BesideAlone:
        """Return what `to_dict` gave."""
        home, alone = Models(**values["home"]), Models(**values["alone"])
        rest = {"samples": values["samples"], "p": values["p"], "worse_off": tuple(values["worse_off"])}
        return cls(values["metric"], home, alone, **rest, uncounted=tuple(values.get("uncounted", ())))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as in `result.json`."""
        return {**asdict(self), "worse_off": list(self.worse_off), "uncounted": list(self.uncounted)}

    def headline(self, names: Sequence[str] | None = None) -> str:
        """Return the finding in one line."""
        if self.samples is None:
            return "nothing is held out, so nobody is warned who is worse off; give --validation, say 0.2"
        samples = self._counted(self.samples)
        if self.worse_off:
            who = ", ".join(client_name(i, names) for i in self.worse_off)
            verb = "is" if len(self.worse_off) == 1 else "are"
            return f"{len(self.worse_off)} of {len(samples)} clients {verb} worse off by more than chance: {who}"
        gains = _gains(self._counted(self.home.validation), self._counted(self.alone.validation), self.metric)
        lower, higher = sum(gain < 0 for gain in gains), sum(gain > 0 for gain in gains)
        needed = enough(len(samples))
        few = "" if min(samples) >= needed else f"; with fewer than {needed}, one client alone can't stand out"
        if info(self.metric).paired != SIGN:
            few = "; few samples of a class say little"
        return (
            f"{self._on_average(samples)}; no single client can be shown to be worse off "
            f"(better: {higher}, worse: {lower}{few})"
        )

    def _counted(self, values: Sequence[T] | None) -> list[T]:
        """Return what a list has of the clients that count."""
        return [value for i, value in enumerate(values or []) if i not in self.uncounted]

    def _on_average(self, samples: Sequence[int]) -> str:
        """Return both means of held-out scores in words: over clients, however few samples one has, and over samples.

        The second is left out where it is the first, and for metrics whose score of all samples together does not
        follow from the clients' own.
        """
        both = [self._counted(models.validation) for models in (self.home, self.alone)]
        home, alone = (_mean_text(scores, self.metric) for scores in both)
        least, most = min(samples), max(samples)
        on = f"{least}" if least == most else f"{least} to {most}"
        count = sum(pair != (None, None) for pair in zip(*both, strict=True))
        clients = "1 client's score" if count == 1 else f"mean over {count} clients of scores"
        text = f"{home}, alone {alone} ({clients} on held-out samples, {on} each)"
        if least == most or not info(self.metric).pools:
            return text
        home, alone = (_pooled_text(scores, samples, self.metric) for scores in both)
        return f"{text}; all held-out samples together {home}, alone {alone}"

    def warnings(self, method: str, reasons: Sequence[str], names: Sequence[str] | None = None) -> list[str]:
        """Return a warning for each client that is worse off, with its reason ("" if there is none) and its cure."""
        cure = "" if method == "autoamp" else ", or try --method autoamp"
        return [
            f"{client_name(i, names)} is worse off than alone: {self.both(i)}{reasons[i] and f'; {reasons[i]}'}. "
            f"Take its model trained alone (fedamp export --take-home alone){cure}"
            for i in self.worse_off
        ]

    def both(self, i: int) -> str:
        """Return a client's held-out scores in words, and how sure it is that alone is better."""
        if self.samples is None or self.p is None:
            return "nothing is held out"
        home, alone = (score_text((models.validation or [])[i], self.metric) for models in (self.home, self.alone))
        return f"{home} against {alone} on {self.samples[i]} held-out samples (p = {self.p[i]:.2g})"


def beside_alone(
    metric: str, home: Models, alone: Models, errors: tuple[Errors, Errors], counted: Sequence[bool]
) -> BesideAlone:
    """Return what the errors of both on the same held-out samples say; who is not `counted` is never worse off."""
    uncounted = tuple(i for i, mine in enumerate(counted) if not mine)
    scores = zip(home.validation or [], alone.validation or [], strict=True)
    if info(metric).paired != SIGN:  # who has a score by neither has samples that do not define one
        counted = [mine and pair != (None, None) for mine, pair in zip(counted, scores, strict=True)]
    p = adjusted([paired_p(metric, *both, i) for i, both in enumerate(zip(*errors, strict=True))], counted)
    gains = _gains(home.validation or [], alone.validation or [], metric)
    worse = tuple(i for i, each in enumerate(p) if each <= LEVEL and gains[i] < 0)
    return BesideAlone(metric, home, alone, [len(each) for each in errors[0]], p, worse, uncounted)


def _mean_text(scores: Sequence[float | None], metric: str) -> str:
    """Return the mean over the clients in words."""
    known = [score for score in scores if score is not None]
    return score_text(sum(known) / len(known) if known else None, metric)


def _pooled_text(scores: Sequence[float | None], samples: Sequence[int], metric: str) -> str:
    """Return the score on the samples of all clients together in words."""
    known = np.array([math.inf if score is None else score for score in scores])
    return score_text(pooled(known, np.zeros(len(known)), samples, metric)[0], metric)


def _wins(home: NDArray[np.float64], alone: NDArray[np.float64]) -> tuple[int, int]:
    """Return on how many samples home, and on how many alone, is the better one."""
    home, alone = (np.where(np.isnan(errors), np.inf, errors) for errors in (home, alone))
    return int((home < alone).sum()), int((alone < home).sum())


def paired_p(metric: str, home: NDArray[np.float64], alone: NDArray[np.float64], client: int) -> float:
    """Return how likely errors at home would exceed those alone by as much if both models were equally good."""
    if info(metric).paired == SIGN:
        home_better, alone_better = _wins(home, alone)
        return sign_test(alone_better, home_better)
    # Of ranks, positive and negative samples each tell the whole difference: together they tell it twice.
    return sign_flips(home, alone, tells=2 if info(metric).paired == RANKS else 1, client=client)


def sign_flips(home: NDArray[np.float64], alone: NDArray[np.float64], tells: int = 1, client: int = 0) -> float:
    """Return how likely the sum of samples' differences is so large if the sign of each is a fair coin's.

    `tells` is how often that sum holds the difference of the two scores. Of few large differences, p stays large.

    >>> sign_flips(np.array([1.0, 1.0, 1.0]), np.zeros(3)) > 0.1, sign_flips(np.ones(20), np.zeros(20)) < 0.001
    (True, True)
    """
    worst = 1e6  # of a model that is not finite; a difference of two such is none
    parts = np.nan_to_num(home, nan=worst, posinf=worst) - np.nan_to_num(alone, nan=worst, posinf=worst)
    parts = parts[parts != 0]
    seen = parts.sum() / tells
    if not len(parts) or seen <= 0:
        return 1.0
    stream, reached = seeds.generator(0, "signs of differences", client), 0
    for begin in range(0, FLIPS, AT_ONCE):
        signs = 2.0 * stream.integers(0, 2, (min(AT_ONCE, FLIPS - begin), len(parts)), dtype=np.int8) - 1
        reached += int((signs @ parts >= seen * (1 - 1e-12)).sum())
    return (1 + reached) / (1 + FLIPS)


def sign_test(wins: int, losses: int) -> float:
    """Return how likely so many wins or more are if each is a fair coin's.

    >>> sign_test(5, 0), sign_test(0, 0), sign_test(9, 1)
    (0.03125, 1.0, 0.0107421875)
    """
    n = wins + losses
    return float(sum(math.comb(n, k) for k in range(wins, n + 1)) / 2**n)


def adjusted(p: Sequence[float], counted: Sequence[bool]) -> list[float]:
    """Return p after Benjamini and Hochberg's procedure over the counted clients; 1 for the others.

    >>> adjusted([0.01, 0.04, 0.03, 0.5], [True, True, True, False])
    [0.03, 0.04, 0.04, 1.0]
    """
    found, least = [1.0] * len(p), 1.0
    order = sorted((i for i in range(len(p)) if counted[i]), key=lambda i: p[i])
    for place in range(len(order), 0, -1):
        least = min(least, p[order[place - 1]] * len(order) / place)
        found[order[place - 1]] = least
    return found


def enough(num_clients: int) -> int:
    """Return how many samples must speak against a client's model for it to stand out by itself.

    >>> enough(1), enough(20)
    (5, 9)
    """
    return math.ceil(math.log2(num_clients / LEVEL))


def _gains(home: Sequence[float | None], alone: Sequence[float | None], metric: str) -> list[float]:
    """Return by how much each client does better than alone; what is not finite is the worst, whatever is scored."""
    sign = 1 if higher_is_better(metric) else -1
    worst = -math.inf
    pairs = [[worst if score is None else sign * score for score in both] for both in zip(home, alone, strict=True)]
    return [0.0 if mine == other else mine - other for mine, other in pairs]


def score_text(score: float | None, metric: str) -> str:
    """Return a score, as it is shown, with its unit or its name."""
    return info(metric).named(score, digits=1)
