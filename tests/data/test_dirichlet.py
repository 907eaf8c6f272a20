"""Dirichlet: every sample once, as skewed as beta says."""

import numpy as np
import pytest
from dealt import SEEDS, assign, even, pools, quick
from hypothesis import given
from hypothesis import strategies as st

from fedamp.data.partition import Dirichlet


@given(
    have=st.lists(st.integers(0, 200), min_size=1, max_size=6).filter(lambda have: sum(have) >= 100),
    beta=st.floats(0.5, 100),
    num_clients=st.integers(1, 5),
    test_samples=st.integers(1, 20),
    seed=SEEDS,
)
@quick
def test_dirichlet(have, beta, num_clients, test_samples, seed):
    setting = Dirichlet(beta=beta, min_samples=5, test_samples=test_samples)
    data = pools(have, [20] * len(have))
    result, train, test = assign(setting, data, num_clients, seed)
    assert result.groups is None
    assert np.array_equal(np.sort(np.concatenate(result.train)), data[1])
    assert train.sum(axis=1).min() >= 5
    quota = test_samples * train / train.sum(axis=1, keepdims=True)
    assert (np.abs(test - quota) < 1).all()  # 20 are enough, so that nothing is cut
    assert (test[train == 0] == 0).all()


def skew(beta, seed):
    """Mean distance of the clients' class shares from uniform ones."""
    _, train, _ = assign(Dirichlet(beta=beta, min_samples=1, test_samples=1), even(10, 300, 50), 10, seed)
    return np.abs(train / train.sum(axis=1, keepdims=True) - 0.1).sum(axis=1).mean()


@pytest.mark.parametrize("seed", range(5))
def test_dirichlet_small_beta_is_more_skewed(seed):
    assert skew(0.1, seed) > skew(1, seed) + 0.2 > skew(100, seed) + 0.5


def test_dirichlet_shares_have_the_right_spread():
    """A client's share of a class has mean 1/m and variance (m - 1) / (m^2 (m beta + 1))."""
    shares = []
    for seed in range(50):
        setting = Dirichlet(beta=2.0, min_samples=1, test_samples=1)
        shares.append(assign(setting, even(10, 400, 10), 4, seed)[1] / 400)
    assert np.var(shares) == pytest.approx(3 / (16 * 9), rel=0.15)


def test_dirichlet_test_samples_are_capped_and_the_others_take_the_excess():
    train, have = np.array([[60, 30, 10, 0]]), np.array([4, 50, 50, 50])
    setting = Dirichlet(test_samples=20)
    assert setting.test_counts(have, train, 0).tolist() == [[4, 12, 4, 0]]
    assert setting.test_counts(np.array([4, 6, 10, 50]), train, 0).tolist() == [[4, 6, 10, 0]]


def test_dirichlet_extreme_betas():
    for beta in (1e-9, 1e9):
        _, train, _ = assign(Dirichlet(beta=beta, min_samples=1, test_samples=1), even(20, 30, 5), 3)
        assert (train.max(axis=0) == (30 if beta < 1 else 10)).all()
