"""What right guesses say about epsilon: lower bounds from one run with many canaries.

Each of m canaries is in the training samples or not, by a fair coin of its own. Whoever saw what left the client
guesses r of the coins, and v guesses are right. If a promise makes so many right guesses too unlikely, it was not kept.

Two promises can be tested. `epsilon_bound` is about (epsilon, delta) alone and assumes nothing else. `is_broken` is
about a whole trade-off curve, all that an account knows of a mechanism, and needs far fewer canaries. Both allow that a
mechanism betrays all canaries at once, if rarely; whoever repeats the run can tell: `is_broken_on_average`.

Sources: Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023, Appendix D; Mahloujifar,
Melis, Chaudhuri, "Auditing f-Differential Privacy in One Run", ICML 2025.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit  # type: ignore[import-untyped]
from scipy.stats import binom  # type: ignore[import-untyped]

LARGEST = 60.0
"""No epsilon above it is looked for: not even all of 10^20 right guesses would show it."""


@dataclass(frozen=True)
class Guesses:
    """Guesses about coins: how many canaries there are, how many coins were guessed, and how many guesses are right."""

    canaries: int  # m
    made: int  # r
    right: int  # v

    @property
    def share(self) -> float:
        """How many of the guesses are right."""
        return self.right / self.made

    def __add__(self, other: Guesses) -> Guesses:
        """Return the guesses of two runs as those of one: each coin matters in one of them, so that bounds hold."""
        return Guesses(self.canaries + other.canaries, self.made + other.made, self.right + other.right)

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.made <= self.canaries:
            raise ValueError(f"got {self}; expected right <= made <= canaries")


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return how likely so many right guesses are at most, if the client is (epsilon, delta)-private.

    P[V >= v] <= beta + 2 m delta alpha, where W ~ Binomial(r, e^epsilon / (1 + e^epsilon)), beta = P[W >= v] and
    alpha = max over i from 1 to v of P[v > W >= v - i] / i.
    """
    v = guesses.right
    w = binom(guesses.made, expit(epsilon))
    alpha = 0.0
    if delta > 0 and v > 0:
        below = np.cumsum(w.pmf(np.arange(v - 1, -1, -1)))
        alpha = float((below / np.arange(1, v + 1)).max())
    return min(1.0, float(w.sf(v - 1)) + 2 * guesses.canaries * delta * alpha)


def epsilon_bound(guesses: Guesses, delta: float, mistake: float) -> float:
    """Return the largest epsilon that so many right guesses refute, with a probability of being wrong of `mistake`.

    0 if they refute nothing. The number of guesses must have been chosen before looking at the coins.
    """
    low, high = 0.0, LARGEST
    if p_value(guesses, 0.0, delta) >= mistake:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(guesses, middle, delta) < mistake else (low, middle)
    return low


@dataclass(frozen=True)
class Curve:
    """A trade-off curve: the client is (epsilon_j, delta_j)-private for all j, in both directions.

    f(x) = max over j of 1 - delta - e^epsilon x and e^-epsilon (1 - delta - x), at least 0: whoever takes an absent
    sample for a present one with probability x misses a present one with probability f(x) or more.
    """

    epsilons: NDArray[np.float64]
    deltas: NDArray[np.float64]

    def power(self, x: float) -> float:
        """Return 1 - f(x): the most that can be right where x is wrong."""
        straight = self.deltas + np.exp(self.epsilons) * x
        mirrored = 1 - np.exp(-self.epsilons) * (1 - self.deltas - x)
        return min(1.0, float(np.minimum(straight, mirrored).min()))

    def cost(self, y: float) -> float:
        """Return the least x with power(x) >= y: how much must be wrong where y is right. f is its own mirror image."""
        straight = np.exp(-self.epsilons) * (y - self.deltas)
        mirrored = 1 - self.deltas - np.exp(self.epsilons) * (1 - y)
        return max(0.0, float(np.maximum(straight, mirrored).max()))


def is_broken(guesses: Guesses, curve: Curve, mistake: float) -> bool:
    """Return whether a trade-off curve is refuted, with a probability of being wrong of `mistake`.

    p_i is the probability of i right guesses. For each c, with A_c = sum over i >= c of i p_i / m and B_c = sum over
    i >= c of (r - i) p_i / m, the curve demands A_c <= power(B_{c-1}): a guess that is right while c or more are, is
    wrong while c - 1 or more are right once its coin is turned. If P[V >= v] were `mistake`, that demands at least so
    much probability of v - 1, v - 2, ... right guesses; if all of it comes to more than 1, the curve can't hold.
    """
    m, r, v = guesses.canaries, guesses.made, guesses.right
    if v == 0:
        return False
    right, wrong = mistake * v / m, mistake * (r - v) / m  # A_v and B_v
    for i in range(v - 1, -1, -1):
        needed = max(wrong, curve.cost(right))
        right, wrong = right + i / (r - i) * (needed - wrong), needed
        if right + wrong > r / m:
            return True
    return False


def is_broken_on_average(shares: Sequence[float], curve: Curve, mistake: float) -> bool:
    """Return whether shares of right guesses in independent runs, each of all coins, refute a trade-off curve.

    A guess is right with probability a <= power(1 - a), so that the mean share is at most the largest such a. As shares
    x_i are independent and not negative, E[prod x_i / a] <= 1, and P[prod x_i / a >= 1 / mistake] <= mistake (Markov).
    """
    low, high = 0.5, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if middle <= curve.power(1 - middle) else (low, middle)
    return math.prod(share / high for share in shares) >= 1 / mistake


def area(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    """Return the area under an attack's curve: how often a canary that is in scores higher than one that is out."""
    if not len(inside) or not len(outside):
        return math.nan
    ordered = np.sort(outside)
    higher = np.searchsorted(ordered, inside, "left") + np.searchsorted(ordered, inside, "right")
    return float(higher.mean() / (2 * len(outside)))
