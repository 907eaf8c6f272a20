"""Bounds from right guesses: against published figures, another way to compute them, and mechanisms that are known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import norm

from fedamp.runs.audit.bounds import Curve, Guesses, area, epsilon_bound, is_broken, is_broken_on_average, p_value
from fedamp.runs.audit.verdict import guessed, guessed_in

pytestmark = pytest.mark.many
"""Run after the fast tests, on all cores: these train."""

MISTAKE = 0.05


def gaussian(mu: float) -> Curve:
    """Return the curve of one release with sensitivity 1 and noise 1 / mu: Balle and Wang, 2018, Theorem 8."""
    epsilons = np.linspace(0, 15, 151)
    return Curve(epsilons, norm.cdf(-epsilons / mu + mu / 2) - np.exp(epsilons) * norm.cdf(-epsilons / mu - mu / 2))


def pure(epsilon: float, delta: float = 0.0) -> Curve:
    return Curve(np.array([epsilon]), np.array([delta]))


def randomized_response(epsilon: float, count: int, stream: np.random.Generator) -> Guesses:
    """Return guesses about coins that were each told truly with probability e^epsilon / (1 + e^epsilon)."""
    return Guesses(count, count, int((stream.random(count) < 1 / (1 + np.exp(-epsilon))).sum()))


def likeliest(guesses: Guesses, curve: Curve) -> float:
    """Return the largest P[V >= v] that a curve allows, as a linear program over the probabilities of each V."""
    m, r, i = guesses.canaries, guesses.made, np.arange(guesses.made + 1)
    rows, most = [], []
    for c in range(1, r + 1):
        right, wrong = np.where(i >= c, i, 0) / m, np.where(i >= c - 1, r - i, 0) / m
        for epsilon, delta in zip(curve.epsilons, curve.deltas, strict=True):
            rows += [right - np.exp(epsilon) * wrong, right - np.exp(-epsilon) * wrong]
            most += [delta, 1 - np.exp(-epsilon) * (1 - delta)]
    found = linprog(-(i >= guesses.right).astype(float), rows, most, [np.ones(r + 1)], [1])
    return float(-found.fun)


def test_steinke_bound_is_the_papers():
    """Appendix D of the paper prints 0.673 for 75 right guesses of 100, with 1000 canaries."""
    assert epsilon_bound(Guesses(1000, 100, 75), 1e-4, MISTAKE) == pytest.approx(0.673, abs=5e-4)


def test_nothing_follows_from_guesses_that_are_luck():
    assert epsilon_bound(Guesses(100, 100, 50), 1e-5, MISTAKE) == 0
    assert epsilon_bound(Guesses(100, 100, 0), 1e-5, MISTAKE) == 0
    assert not is_broken(Guesses(100, 100, 0), pure(0.0), MISTAKE)
    assert not is_broken(Guesses(100, 100, 50), pure(0.0), MISTAKE)


def test_all_right_in_closed_form():
    """If all r guesses are right, e^epsilon / (1 + e^epsilon) is at least mistake^(1/r), by both bounds."""
    least = MISTAKE ** (1 / 40)
    exact = np.log(least / (1 - least))
    assert epsilon_bound(Guesses(40, 40, 40), 0.0, MISTAKE) == pytest.approx(exact, rel=1e-6)
    assert is_broken(Guesses(40, 40, 40), pure(exact - 1e-6), MISTAKE)
    assert not is_broken(Guesses(40, 40, 40), pure(exact + 1e-6), MISTAKE)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_bounds_hold_for_randomized_response_and_come_near(epsilon: float):
    """Of a mechanism whose epsilon is known, at most 5 % of bounds may be above it; binomial luck is allowed for."""
    stream = np.random.default_rng(7)
    drawn = [randomized_response(epsilon, 1000, stream) for _ in range(400)]
    refuted = [p_value(each, epsilon, 0.0) < MISTAKE for each in drawn]
    assert 4 <= sum(refuted) <= 32  # 20 at most are expected, give or take 4; and the test is not idle
    # The recursion is as strict or a little more careful, on the same draws.
    assert sum(is_broken(each, pure(epsilon), MISTAKE) for each in drawn[:100]) <= sum(refuted[:100])
    bounds = np.array([epsilon_bound(each, 0.0, MISTAKE) for each in drawn[:40]])
    assert 0.7 * epsilon < np.median(bounds) < epsilon


@pytest.mark.parametrize("curve", [pure(1.0), pure(0.5, 0.01), gaussian(1.0)])
@pytest.mark.parametrize("guesses", [Guesses(20, 20, 18), Guesses(40, 20, 16), Guesses(12, 12, 12)])
def test_recursion_is_the_linear_program(curve: Curve, guesses: Guesses):
    """What the recursion refutes is exactly what no distribution of right guesses can reach."""
    most = likeliest(guesses, curve)
    assert is_broken(guesses, curve, most * 1.0001)
    assert not is_broken(guesses, curve, most * 0.9999)


def test_curves_mirror_themselves():
    for curve in (pure(1.0), pure(0.5, 0.01), gaussian(1.0)):
        for y in (0.1, 0.4, 0.9):
            assert curve.power(curve.cost(y)) == pytest.approx(y)
    assert gaussian(1.0).power(0.3) == pytest.approx(norm.cdf(norm.ppf(0.3) + 1), rel=1e-3)


def scored(mu: float, count: int, stream: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    inside = stream.random(count) < 0.5
    return inside * mu + stream.normal(size=count), inside


def test_gaussian_curve_holds_for_gaussian_noise_and_not_for_half_of_it():
    """The noise that is claimed is never refuted here; half of it is, at 1000 canaries, nearly always."""
    stream = np.random.default_rng(3)
    for mu in (0.5, 1.0):
        honest = [is_broken(guessed(*scored(mu, 1000, stream)), gaussian(mu), MISTAKE) for _ in range(40)]
        halved = [is_broken(guessed(*scored(2 * mu, 1000, stream)), gaussian(mu), MISTAKE) for _ in range(40)]
        assert sum(honest) == 0
        assert sum(halved) >= 36


def test_averages_over_runs_in_closed_form():
    """Shares of 0.8 in 20 runs refute a curve that allows 0.6 at most if (0.8 / 0.6)^20 is above 20: it is 315."""
    curve = pure(np.log(0.6 / 0.4))
    assert is_broken_on_average([0.8] * 20, curve, 1 / 314)
    assert not is_broken_on_average([0.8] * 20, curve, 1 / 316)
    assert not is_broken_on_average([0.6] * 1000, curve, MISTAKE)
    assert not is_broken_on_average([1.0] * 1000 + [0.0], curve, MISTAKE)
    assert is_broken_on_average([0.84] * 20, gaussian(1.0), 0.03)  # Phi(1) where Phi(1/2) = 0.69 is the most


def test_guesses_of_two_runs_are_those_of_one():
    assert Guesses(10, 6, 5) + Guesses(20, 4, 1) == Guesses(30, 10, 6)
    assert Guesses(10, 6, 3).share == 0.5
    with pytest.raises(ValueError, match="right <= made"):
        Guesses(10, 6, 7)


def test_guesses_are_of_the_outermost_scores():
    scores, inside = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 0.0, 9.0, -1.0]), np.array([1, 0, 0, 0, 1, 0, 1, 1], np.bool_)
    assert guessed(scores, inside, 0.5) == Guesses(8, 4, 3)  # 9 and 5 are in, 0 is out, -1 is in
    assert guessed_in(scores, inside, 0.375) == Guesses(8, 3, 3)


def test_area_counts_pairs():
    assert area(np.array([1.0, 2.0]), np.array([0.0, 1.5])) == 0.75
    assert area(np.array([1.0]), np.array([1.0])) == 0.5
    assert np.isnan(area(np.array([]), np.array([1.0])))
