"""IID: equal amounts, in the pool's proportions."""

import numpy as np
from dealt import SEEDS, assign, pools, quick
from hypothesis import given
from hypothesis import strategies as st

from fedamp.data.partition import IID


@given(
    have=st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any),
    num_clients=st.integers(1, 9),
    share=st.booleans(),
    data=st.data(),
    seed=SEEDS,
)
@quick
def test_iid(have, num_clients, share, data, seed):
    total = sum(have)
    share = share or num_clients > total
    samples = data.draw(st.none() | st.integers(1, total if share else total // num_clients))
    have_test = np.array(have) + 1  # a class may be missing in training, but not altogether
    test_samples = data.draw(st.integers(1, int(have_test.sum())))
    setting = IID(samples=samples, test_samples=test_samples, share_samples=share)
    result, train, test = assign(setting, pools(have, have_test), num_clients, seed)
    size = max(1, total // num_clients) if samples is None else samples
    assert result.groups is None
    assert (train.sum(axis=1) == size).all()
    assert (train >= np.array(have) * size // total).all()
    assert (test >= have_test * test_samples // have_test.sum()).all()
    assert (result.shared > 0) == (size * num_clients > total)


def test_iid_has_the_pools_proportions():
    _, train, test = assign(IID(test_samples=10), pools([600, 300, 100], [60, 30, 10]), 10)
    assert (train == [60, 30, 10]).all()
    assert (test == [6, 3, 1]).all()


def test_iid_left_over_is_drawn_fairly():
    """One sample a client of three classes that have 50, 30 and 20 of 100."""
    have = [50, 30, 20]
    counts = [assign(IID(samples=1, test_samples=1), pools(have, have), 10, seed)[1] for seed in range(100)]
    np.testing.assert_allclose(np.mean(counts, axis=(0, 1)), [0.5, 0.3, 0.2], atol=0.05)
