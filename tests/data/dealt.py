"""What the tests of settings share: pools of labels, and what holds of every assignment."""

import numpy as np
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 2**32)


quick = hypothesis_settings(max_examples=100, deadline=None)


def pools(train, test):
    """Shuffled labels with so many training and test samples of each class, and the two pools."""
    counts = np.add(train, test)
    labels = np.repeat(np.arange(len(counts)), counts)
    is_train = np.concatenate([np.arange(total) < wanted for total, wanted in zip(counts, train, strict=True)])
    order = np.random.default_rng(0).permutation(len(labels))
    return labels[order], np.flatnonzero(is_train[order]), np.flatnonzero(~is_train[order])


def even(num_classes, train, test):
    return pools([train] * num_classes, [test] * num_classes)


def table(labels, clients):
    """Samples of each class (columns) that each client (rows) has."""
    labels = labels.astype(int)
    return np.stack([np.bincount(labels[own], minlength=labels.max() + 1) for own in clients])


def num_shared(clients):
    """Samples that several clients have, counted the plain way."""
    return int((np.unique(np.concatenate(clients), return_counts=True)[1] > 1).sum())


def assign(setting, data, num_clients, seed=0):
    """Assign, and check what holds for every setting."""
    labels, train_pool, test_pool = data
    result = setting.assign(labels, train_pool, test_pool, num_clients, seed)
    for clients, pool, shared in (
        (result.train, train_pool, result.shared),
        (result.test, test_pool, result.shared_test),
    ):
        assert len(clients) == num_clients
        assert all(own.dtype == np.int64 and (np.diff(own) > 0).all() for own in clients)
        assert np.isin(np.concatenate(clients), pool).all()
        assert shared == num_shared(clients)
        # Samples are shared only in classes of which no sample is left unused.
        asked, have = table(labels, clients).sum(axis=0), table(labels, [pool])[0]
        distinct = table(labels, [np.unique(np.concatenate(clients))])[0]
        assert (distinct == np.minimum(asked, have)).all()
    assert setting.share_samples or result.shared == 0
    assert all(len(own) == setting.test_samples for own in result.test)
    return result, table(labels, result.train), table(labels, result.test)


def spread(counts):
    return int(np.ptp(counts)) if len(counts) else 0


SMALL = pools([50, 50, 8, 50], [50, 50, 50, 50])
