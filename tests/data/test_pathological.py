"""Pathological: a few classes each, every class held by as many clients."""

import numpy as np
from dealt import SEEDS, assign, even, pools, quick, spread
from hypothesis import given
from hypothesis import strategies as st

from fedamp.data.partition import Pathological


@given(
    num_classes=st.integers(1, 9),
    num_clients=st.integers(1, 12),
    data=st.data(),
    test_samples=st.integers(1, 20),
    seed=SEEDS,
)
@quick
def test_pathological(num_classes, num_clients, data, test_samples, seed):
    classes = data.draw(st.integers(1, num_classes))
    samples = data.draw(st.none() | st.integers(classes, 4 * classes))
    have = data.draw(st.lists(st.integers(48, 70), min_size=num_classes, max_size=num_classes))
    setting = Pathological(classes=classes, samples=samples, test_samples=test_samples)
    result, train, test = assign(setting, pools(have, [20] * num_classes), num_clients, seed)
    assert result.groups is None
    holders = (train > 0).sum(axis=0)
    assert ((train > 0).sum(axis=1) == classes).all()
    assert spread(holders) <= 1
    assert holders.sum() == num_clients * classes
    if samples is None:
        assert all(spread(train[train[:, label] > 0, label]) <= 1 for label in range(num_classes))
        assert (train.sum(axis=0) == np.where(holders > 0, have, 0)).all()
    else:
        assert (train.sum(axis=1) == samples).all()
        assert all(spread(row[row > 0]) <= 1 for row in train)
    assert all(spread(own[held > 0]) <= 1 for own, held in zip(test, train, strict=True))
    assert (test[train == 0] == 0).all()


def test_pathological_combinations_are_random():
    """All 45 pairs of ten classes turn up, each about as often: 2000 clients, 44 of each pair."""
    pairs = []
    for seed in range(20):
        _, train, _ = assign(Pathological(samples=2, test_samples=2), even(10, 20, 20), 100, seed)
        pairs += [tuple(np.flatnonzero(row)) for row in train]
    _, counts = np.unique(pairs, axis=0, return_counts=True)
    assert len(counts) == 45
    assert 15 < counts.min() <= counts.max() < 90
