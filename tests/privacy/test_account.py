"""What steps come to in epsilon: by closed forms, by a second library, and at the edges."""

import math
from collections import Counter

import numpy as np
import pytest
from prv_accountant import PRVAccountant
from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism

from fedamp.errors import UserError
from fedamp.privacy import account
from fedamp.privacy.events import Event

pytest.importorskip("dp_accounting")

DELTA = 1e-5
GRID = [(0.01, 0.8, 500), (0.01, 1.0, 5000), (0.05, 1.1, 100), (0.1, 1.0, 10), (0.1, 4.0, 2000), (0.5, 3.0, 50)]


def steps(*events: tuple[float, float, int]) -> Counter[Event]:
    return Counter({Event(rate, noise): count for rate, noise, count in events})


def phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Theorem 8 of Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018."""
    return phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("noise", "count"), [(0.7, 1), (1.5, 1), (4.0, 25), (20.0, 300), (9.0, 1)])
def test_without_sampling_it_is_the_gaussian_mechanism(noise, count):
    """Steps with all samples compose to one Gaussian mechanism of mu = sqrt(n) / z, which has a closed form."""
    spent, mu = steps((1.0, noise, count)), math.sqrt(count) / noise
    epsilon = account.epsilon(spent, DELTA)
    assert gaussian_delta(epsilon, mu) <= DELTA  # never too low
    assert gaussian_delta(epsilon * 0.999, mu) > DELTA  # and hardly too high
    assert account.delta(spent, epsilon) == pytest.approx(DELTA, rel=1e-6)
    exact = gaussian_delta(1.0, mu)
    assert exact * (1 - 1e-9) <= account.delta(spent, 1.0) <= exact * 1.01 + 1e-12


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 0.5), (0.1, 1.0), (0.5, 2.0), (0.9, 0.8)])
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_one_step_by_the_integral_that_defines_it(rate, noise, epsilon):
    """delta = max over both orders of the integral of (P - e^epsilon Q)+, P = (1 - q) N(0, z^2) + q N(1, z^2)."""
    x = np.linspace(-14 * noise - 1, 14 * noise + 2, 2_000_001)
    q = np.exp(-((x / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))
    p = (1 - rate) * q + rate * np.exp(-(((x - 1) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))
    width = x[1] - x[0]
    exact = max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum() * width) for a, b in ((p, q), (q, p)))
    found = account.delta(steps((rate, noise, 1)), epsilon)
    assert exact - 1e-9 <= found <= exact * 1.02 + 1e-6


def second_opinion(about, *kinds):
    """Return epsilon, which is `about` so much, by Microsoft's PRV accountant (Gopi et al., NeurIPS 2021)."""
    prvs = [PoissonSubsampledGaussianMechanism(rate, noise) for rate, noise, _ in kinds]
    counts = [count for _, _, count in kinds]
    found = PRVAccountant(
        prvs, max_self_compositions=counts, eps_error=min(0.01, about / 500), delta_error=DELTA / 1000
    )
    return found.compute_epsilon(DELTA, num_self_compositions=counts)[1]


@pytest.mark.many
@pytest.mark.parametrize(("rate", "noise", "count"), GRID)
def test_as_another_library_says(rate, noise, count):
    mine = account.epsilon(steps((rate, noise, count)), DELTA)
    assert mine == pytest.approx(second_opinion(mine, (rate, noise, count)), rel=0.01)


def test_several_kinds_of_steps_as_another_library_says():
    kinds = [(0.1, 2.0, 200), (0.2, 2.0, 10), (0.1, 2.0 / math.sqrt(5), 30)]
    mine = account.epsilon(steps(*kinds), DELTA)
    assert mine == pytest.approx(second_opinion(mine, *kinds), rel=0.01)


def test_it_grows_with_steps_and_rate_and_falls_with_noise_and_delta():
    usual = account.epsilon(steps((0.1, 1.5, 100)), DELTA)
    assert account.epsilon(steps((0.1, 1.5, 101)), DELTA) > usual
    assert account.epsilon(steps((0.11, 1.5, 100)), DELTA) > usual
    assert account.epsilon(steps((0.1, 1.6, 100)), DELTA) < usual
    assert account.epsilon(steps((0.1, 1.5, 100)), DELTA / 10) > usual
    assert account.epsilon(steps((0.1, 1.5, 100), (0.01, 1.5, 1)), DELTA) > usual


def test_counters_add_up():
    """Two rounds are as much as the two together, in whatever order they came."""
    one, two = steps((0.1, 1.5, 60), (0.2, 1.5, 3)), steps((0.1, 1.5, 40))
    assert account.epsilon(one + two, DELTA) == account.epsilon(steps((0.2, 1.5, 3), (0.1, 1.5, 100)), DELTA)
    assert max(account.epsilon(each, DELTA) for each in (one, two)) < account.epsilon(one + two, DELTA)


def test_gradients_of_one_minibatch_cost_more_than_steps_of_their_own():
    """c gradients share one draw: noise z / sqrt(c). Without sampling it makes no difference."""
    together, apart = steps((0.1, 2.0 / math.sqrt(2), 50)), steps((0.1, 2.0, 100))
    assert account.epsilon(together, DELTA) > account.epsilon(apart, DELTA)
    whole = [account.epsilon(steps((1.0, z, n)), DELTA) for z, n in ((9.0 / math.sqrt(2), 50), (9.0, 100))]
    assert whole[0] == pytest.approx(whole[1], rel=1e-3)


def test_at_the_edges():
    assert account.epsilon(Counter(), DELTA) == account.delta(Counter(), 1.0) == 0
    assert account.epsilon(steps((0.1, 1.0, 0), (0.0, 1.0, 5), (0.1, math.inf, 5)), DELTA) == 0
    assert account.epsilon(steps((0.1, 0.0, 1)), DELTA) == math.inf
    assert account.delta(steps((0.1, 0.0, 1)), 3.0) == 1
    assert 0 < account.epsilon(steps((1e-6, 0.5, 1000)), DELTA) < 0.01
    assert 1e3 < account.epsilon(steps((0.5, 0.02, 10)), DELTA) < 1e5
    for delta in (0.0, 1.0, -1e-5, math.nan, "1e-5"):
        with pytest.raises(UserError, match="delta is"):
            account.epsilon(steps((0.1, 1.0, 1)), delta)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("plan", [steps((0.07, 1.0, 3000)), steps((1.0, 1.0, 5)), steps((0.1, 1.0, 90), (0.2, 0.5, 7))])
def test_noise_for_an_epsilon_spends_no_more_and_hardly_less(plan, epsilon):
    z = account.calibrate(plan, epsilon, DELTA)
    spent = account.epsilon(account.scaled(plan, z), DELTA)
    assert epsilon * (1 - 2 * account.CLOSE) <= spent <= epsilon


def test_a_plan_may_be_a_function_of_the_noise():
    plan = steps((0.07, 1.0, 300))
    found = account.calibrate(lambda z: account.scaled(plan, z), 2.0, DELTA)
    assert found == account.calibrate(plan, 2.0, DELTA)
    assert account.calibrate(Counter(), 2.0, DELTA) == 0  # nothing is spent: no noise is needed


def test_what_no_noise_can_reach_is_said():
    with pytest.raises(UserError, match=r"no noise up to 1e\+06 spends as little as epsilon 1e-12"):
        account.calibrate(steps((1.0, 1.0, 10**4)), 1e-12, DELTA)
    assert account.calibrate(steps((0.01, 1.0, 1)), 1e-6, 0.1) < 0.5  # delta alone allows it: epsilon is 0 there
    with pytest.raises(UserError, match="epsilon is 0"):
        account.calibrate(steps((1.0, 1.0, 1)), 0, DELTA)


@pytest.mark.parametrize("delta", [1e-15, 1e-17])
def test_a_delta_that_no_noise_can_reach_is_said(delta):
    with pytest.raises(UserError, match=rf"delta is {delta:g}, .* expected a larger one, say 1e-12"):
        account.calibrate(steps((0.1, 1.0, 10)), 4.0, delta)
    assert 1 < account.calibrate(steps((0.1, 1.0, 10), (0.2, 1.0, 10), (0.3, 1.0, 10)), 4.0, account.SMALL) < 3


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setattr(account, "available", lambda: False)
    account._one_step.cache_clear()
    with pytest.raises(UserError, match=r"dp-accounting, and that is not installed: pip install 'fedamp\[privacy\]'"):
        account.epsilon(steps((0.123, 1.0, 1)), DELTA)


def test_next_to_no_noise_is_none():
    assert account.epsilon(steps((0.5, 1e-9, 3)), DELTA) == math.inf
