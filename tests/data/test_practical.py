"""Practical: groups with dominating classes; the paper's EMNIST."""

import numpy as np
import pytest
from dealt import SEEDS, assign, even, pools, quick, spread
from hypothesis import given
from hypothesis import strategies as st

from fedamp.data.partition import Practical


@st.composite
def practical_cases(draw):
    groups = draw(st.integers(1, 4))
    group_classes = tuple(draw(st.lists(st.integers(1, 4), min_size=groups, max_size=groups)))
    group_clients = tuple(draw(st.lists(st.integers(1, 4), min_size=groups, max_size=groups)))
    # At most 15 other classes and 18 samples for them: every class can have one.
    share = draw(st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0]) | st.floats(0.3, 0.8))
    sizes = draw(st.lists(st.integers(90, 140), min_size=groups, max_size=groups).map(tuple) | st.integers(90, 140))
    test_samples = draw(st.integers(1, 60))
    return Practical(
        groups=groups,
        group_clients=group_clients,
        group_classes=group_classes,
        share=share,
        sizes=sizes,
        test_samples=test_samples,
    )


@given(setting=practical_cases(), seed=SEEDS)
@quick
def test_practical(setting, seed):
    num_classes, num_clients = sum(setting.group_classes), sum(setting.group_clients)
    result, train, test = assign(setting, even(num_classes, 1000, 70), num_clients, seed)
    assert result.groups == tuple(np.repeat(np.arange(setting.groups), setting.group_clients))
    ends = np.cumsum(setting.group_classes)
    for group in range(setting.groups):
        rows = np.array(result.groups) == group
        dominating = np.zeros(num_classes, bool)
        dominating[ends[group] - setting.group_classes[group] : ends[group]] = True
        train_size = setting.sizes if isinstance(setting.sizes, int) else setting.sizes[group]
        for counts, size in ((train[rows], train_size), (test[rows], setting.test_samples)):
            first = size if dominating.all() else round(setting.share * size)
            assert (counts.sum(axis=1) == size).all()
            assert (counts[:, dominating].sum(axis=1) == first).all()
            for part in (counts[:, dominating], counts[:, ~dominating]):
                assert all(spread(row) <= 1 for row in part)
                assert spread(part.sum(axis=0)) <= 1  # no class is favoured in a group
    assert (train > 0).all() or (setting.share in (0, 1) and setting.groups > 1)


def test_practical_emnist_as_in_the_paper():
    setting = Practical(groups=3, group_clients=[10, 26, 26], group_classes=[10, 26, 26], sizes=[1000, 700, 400])
    assert setting.sizes == (1000, 700, 400)
    result, train, test = assign(setting, even(62, 2500, 400), 62, seed=1)
    assert result.groups == (0,) * 10 + (1,) * 26 + (2,) * 26
    assert (result.shared, result.shared_test) == (0, 0)
    classes = np.repeat([0, 1, 2], [10, 26, 26])
    for group, size, dominating, other, other_classes in (
        (0, 1000, 800, 200, 52),
        (1, 700, 560, 140, 36),
        (2, 400, 320, 80, 36),
    ):
        own, rest = (
            train[np.ix_(np.array(result.groups) == group, wanted)] for wanted in (classes == group, classes != group)
        )
        assert (own.sum(axis=1) == dominating).all()
        assert (rest.sum(axis=1) == other).all()
        assert dominating + other == size
        assert rest.shape[1] == other_classes
        assert own.min() == dominating // own.shape[1]
        assert own.max() == -(-dominating // own.shape[1])
        assert rest.min() == other // other_classes
        assert rest.max() == -(-other // other_classes)
    assert (train[:10, :10] == 80).all()
    assert (test.sum(axis=1) == 100).all()
    assert (test[:10, :10] == 8).all()
    assert (test[:10, 10:].sum(axis=1) == 20).all()
    assert test[:10, 10:].max() == 1
    assert len(np.unique(test[:10, 10:], axis=0)) == 10  # which of the 52 get one varies


def test_practical_default_groups_are_as_equal_as_can_be():
    result, train, _ = assign(Practical(groups=3, sizes=40, test_samples=10), even(7, 200, 20), 8)
    assert result.groups == (0, 0, 0, 1, 1, 1, 2, 2)
    dominating = [np.flatnonzero(row > 8).tolist() for row in train[[0, 3, 6]]]
    assert dominating == [[0, 1, 2], [3, 4], [5, 6]]


def test_practical_extras_differ_between_clients():
    """Ten samples over four classes leave two over; each client gives them to other classes than the last."""
    _, train, _ = assign(Practical(groups=1, sizes=10, test_samples=4), even(4, 400, 100), 100)
    assert (train.sum(axis=0) == 250).all()
    assert len(np.unique(train, axis=0)) == 6


@given(
    groups=st.integers(1, 4),
    num_clients=st.integers(4, 12),
    have=st.lists(st.integers(150, 300), min_size=4, max_size=8),
    share=st.floats(0.4, 0.8),
    seed=SEEDS,
)
@quick
def test_practical_automatic_sizes(groups, num_clients, have, share, seed):
    setting = Practical(groups=groups, share=share, test_samples=5)
    data = pools(have, [50] * len(have))
    result, train, _ = assign(setting, data, num_clients, seed)
    sizes = [train[result.groups.index(group)].sum() for group in range(groups)]
    assert [train[i].sum() for i in range(num_clients)] == [sizes[group] for group in result.groups]
    fall = np.linspace(1, 2 / 3, groups)
    assert np.abs(sizes - sizes[0] * fall).max() <= 0.5 + 1e-9
    assert (train > 0).all()
    # Nearly all of some class is used: every group may leave one sample, and one more a client is too much.
    assert (np.array(have) - train.sum(axis=0)).min() <= groups + num_clients
    larger = [round(s) for s in fall * (sizes[0] + 3 * len(have))]
    with pytest.raises(ValueError, match="the clients ask for"):
        assign(Practical(groups=groups, share=share, test_samples=5, sizes=larger), data, num_clients, seed)


def test_practical_automatic_sizes_in_figures():
    """Two groups of one client, two classes of 90: s = 96 asks for 77 + 13 of the first, s = 97 for 78 + 13."""
    _, train, _ = assign(Practical(groups=2, test_samples=5), even(2, 90, 20), 2)
    assert train.tolist() == [[77, 19], [13, 51]]
    _, train, _ = assign(Practical(groups=2, test_samples=5), even(2, 89, 20), 2)
    assert train.sum(axis=1).tolist() == [95, 63]


@pytest.mark.parametrize("have", [(4, 25), (10, 125)])
def test_more_clients_than_samples_go_round_for_are_told_how_many_there_may_be(have):
    setting, data = Practical(groups=2, test_samples=5), even(*have, 9)
    with pytest.raises(ValueError, match=r"clients is 5000, too many .* expected up to \d+, ") as raised:
        assign(setting, data, 5000)
    most = int(str(raised.value).partition("up to ")[2].partition(",")[0])
    assign(setting, data, most)
    with pytest.raises(ValueError, match=f"clients is {most + 1}, too many .* expected up to {most}, "):
        assign(setting, data, most + 1)
