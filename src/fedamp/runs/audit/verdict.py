"""From scores and coins to guesses, and from guesses to bounds beside the claim."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedamp.config import RunConfig
from fedamp.privacy import account
from fedamp.privacy.events import Spending
from fedamp.runs.audit.bounds import Curve, Guesses, area, epsilon_bound, is_broken, is_broken_on_average
from fedamp.runs.audit.finding import Audit

SHARE = 0.25
"""Of the canaries, how many coins are guessed: those with the highest and the lowest scores. For Gaussian noise of
epsilon 2 to 10 no other share gave larger bounds (simulated, 300 to 3000 canaries)."""
TOP = 0.1
"""The same, at most, if only the highest are guessed: a fault may show some samples clearly, as many as a
minibatch has, and all others not at all."""
ANY_KIND = 0.2
"""Of the probability of a mistake, the part that the bound of any mechanism has; the others need it more."""
POINTS = 100
"""Of an account's trade-off curve."""
WIDEST = 64.0
"""The most that noise is looked for below or above the claimed one, as a factor."""


@dataclass(frozen=True)
class Played:
    """What one run with canaries has shown."""

    scores: NDArray[np.float64]  # (m,)
    inside: NDArray[np.bool_]  # (m,)
    spent: Spending
    leaves: bool
    client: str


def judged(config: RunConfig, runs: Sequence[Played], claim: float | None, confidence: float) -> Audit:
    """Return what the scores of runs show, given the coins, and what they could have shown at most."""
    spent = None
    if config.private and claim is None:
        spent = max((run.spent for run in runs), key=lambda each: account.epsilon(each, config.dp_delta))
        claim = account.epsilon(spent, config.dp_delta)
    guesses = sum_of(guessed(run.scores, run.inside) for run in runs)
    any_kind, gaussian = lower_bounds(runs, spent, config.dp_delta, 1 - confidence)
    knowing = [replace(run, scores=run.inside.astype(float)) for run in runs]  # an attacker who has seen the coins
    reach = None if claim is None else _larger(*lower_bounds(knowing, spent, config.dp_delta, 1 - confidence))
    return Audit(
        client=runs[0].client,
        method=config.method.name,
        rounds=config.rounds,
        claimed=claim,
        delta=config.dp_delta,
        bound=_larger(any_kind, gaussian),
        bound_of_any=any_kind,
        bound_of_gaussian=gaussian,
        reach=reach,
        canaries=guesses.canaries,
        inside=int(sum(run.inside.sum() for run in runs)),
        guesses=guesses.made,
        right=guesses.right,
        area=float(np.mean([area(run.scores[run.inside], run.scores[~run.inside]) for run in runs])),
        confidence=confidence,
        repeats=len(runs),
        leaves=all(run.leaves for run in runs),
    )


def lower_bounds(
    runs: Sequence[Played], spent: Spending | None, delta: float, mistake: float
) -> tuple[float, float | None]:
    """Return the lower bounds of epsilon that runs show: of any mechanism, and of steps like those that were spent."""
    guesses = sum_of(guessed(run.scores, run.inside) for run in runs)
    if spent is None:
        return epsilon_bound(guesses, delta, mistake), None
    share = min(TOP, max((event.rate for event in spent), default=1.0) / 2)
    top = sum_of(guessed_in(run.scores, run.inside, share) for run in runs)
    shares = [guessed(run.scores, run.inside, 1.0).share for run in runs]
    gaussian = gaussian_bound([guesses, top], shares, spent, delta, mistake * (1 - ANY_KIND))
    return epsilon_bound(guesses, delta, mistake * ANY_KIND), gaussian


def _larger(any_kind: float, gaussian: float | None) -> float:
    return max(any_kind, gaussian or 0.0)


def sum_of(guesses: Iterable[Guesses]) -> Guesses:
    """Return the guesses of several runs as those of one."""
    return functools.reduce(operator.add, guesses)


def guessed(scores: NDArray[np.float64], inside: NDArray[np.bool_], share: float = SHARE) -> Guesses:
    """Return how many guesses are right: the highest scores are taken for canaries that are in, the lowest for out."""
    half = max(1, round(share * len(scores) / 2))
    order = np.argsort(scores, kind="stable")
    right = int((~inside[order[:half]]).sum() + inside[order[-half:]].sum())
    return Guesses(len(scores), 2 * half, right)


def guessed_in(scores: NDArray[np.float64], inside: NDArray[np.bool_], share: float) -> Guesses:
    """Return how many guesses are right if only the highest scores are guessed, as canaries that are in."""
    count = max(1, round(share * len(scores)))
    return Guesses(len(scores), count, int(inside[np.argsort(scores, kind="stable")[-count:]].sum()))


def gaussian_bound(
    tries: Sequence[Guesses], shares: Sequence[float], spent: Spending, delta: float, mistake: float
) -> float:
    """Return a lower bound of epsilon for steps like these, of the same rates, whose noise is not what was claimed.

    It is the epsilon of steps with s times the claimed noise, for the largest s that is not refuted: neither by one of
    the `tries`, nor by the `shares` of right guesses of all coins in several runs. Each test has its part of `mistake`.
    """
    if not spent:
        return 0.0
    several = len(shares) > 1
    each = mistake / (len(tries) + several)

    def refuted(s: float) -> bool:
        curve = curve_of(account.scaled(spent, s))
        return any(is_broken(one, curve, each) for one in tries) or (
            several and is_broken_on_average(shares, curve, each)
        )

    low, high = 1 / WIDEST, WIDEST
    for _ in range(14):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return account.epsilon(account.scaled(spent, high), delta)


def curve_of(spent: Spending) -> Curve:
    """Return the trade-off curve of what was spent, from the account."""
    largest = max(account.epsilon(spent, 1e-9), 1e-3)
    epsilons = np.linspace(0.0, min(largest, 700.0), POINTS)
    return Curve(epsilons, np.array(account.deltas(spent, epsilons.tolist())))
