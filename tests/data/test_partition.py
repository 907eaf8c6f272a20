"""Who gets which samples: counts as each setting promises, no sample where it shouldn't be, the seed decides."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fedamp.data.partition import IID, SETTINGS, Dirichlet, Pathological, Practical, make_setting
from fedamp.fields import explained

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


# One example each, for what holds of all settings.
EXAMPLES = {
    "iid": IID(samples=37, test_samples=11),
    "pathological": Pathological(classes=3, samples=31, test_samples=11),
    "practical": Practical(groups=2, sizes=(60, 41), test_samples=11),
    "dirichlet": Dirichlet(beta=1.0, test_samples=11),
}
FIVE = pools([90, 80, 85, 100, 95], [20, 25, 30, 22, 24])


def same(a, b):
    pairs = [*zip(a.train, b.train, strict=True), *zip(a.test, b.test, strict=True)]
    return [bool(np.array_equal(x, y)) for x, y in pairs]


def test_examples_are_all_settings():
    assert EXAMPLES.keys() == SETTINGS.keys()
    assert all(type(EXAMPLES[name]) is SETTINGS[name] for name in SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
@given(seed=SEEDS)
@quick
def test_the_seed_alone_decides(name, seed):
    labels, train_pool, test_pool = FIVE
    result, *_ = assign(EXAMPLES[name], FIVE, 4, seed)
    again, *_ = assign(EXAMPLES[name], (labels.astype(np.uint8), train_pool[::-1], test_pool[::-1]), 4, seed)
    other, *_ = assign(EXAMPLES[name], FIVE, 4, seed + 1)
    assert all(same(result, again))
    assert not any(same(result, other))


def test_every_class_is_shuffled_by_the_seed():
    """Four of 40 samples of each class, whatever the seed, but other ones."""
    data = even(5, 40, 10)
    one, other = (np.concatenate(assign(IID(samples=10, test_samples=5), data, 2, seed)[0].train) for seed in (1, 2))
    for label in range(5):
        ones, others = ({*drawn[data[0][drawn] == label]} for drawn in (one, other))
        assert len(ones) == len(others) == 4
        assert ones != others


@pytest.mark.parametrize("name", ["pathological", "practical", "dirichlet"])
def test_counts_differ_between_seeds(name):
    _, train, test = zip(*(assign(EXAMPLES[name], FIVE, 4, seed) for seed in range(10)), strict=True)
    assert len(np.unique(train, axis=0)) > 3
    assert len(np.unique(test, axis=0)) > 3


def test_labels_of_any_integer_type():
    labels = np.arange(768) % 256
    for kind in (np.uint8, np.int16, np.uint64):
        _, train, _ = assign(IID(test_samples=1), (labels.astype(kind), np.arange(512), np.arange(512, 768)), 2)
        assert (train == 1).all()


@pytest.mark.parametrize(
    ("few", "many"),
    [
        (EXAMPLES["pathological"], EXAMPLES["pathological"]),
        (
            Practical(groups=2, group_clients=(2, 1), sizes=30, test_samples=11),
            Practical(groups=2, group_clients=(2, 4), sizes=30, test_samples=11),
        ),
    ],
)
def test_later_clients_change_nothing(few, many):
    result, *_ = assign(few, FIVE, 3)
    more, *_ = assign(many, FIVE, 6)
    assert all(map(np.array_equal, result.train, more.train[:3]))
    assert all(map(np.array_equal, result.test, more.test[:3]))


@pytest.mark.parametrize("name", SETTINGS)
def test_permission_to_share_is_not_used_without_need(name):
    setting = EXAMPLES[name]
    given = {f.name: getattr(setting, f.name) for f in fields(setting)}
    lenient, *_ = assign(type(setting)(**{**given, "share_samples": True}), FIVE, 4)
    assert lenient.shared == 0
    assert all(same(lenient, assign(setting, FIVE, 4)[0]))


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


SMALL = pools([50, 50, 8, 50], [50, 50, 50, 50])


@pytest.mark.parametrize(
    "setting",
    [
        Pathological(classes=2, samples=16, share_samples=True),
        Pathological(classes=3, samples=18, share_samples=True),
        Practical(groups=2, sizes=20, share_samples=True),
    ],
)
def test_only_the_class_that_is_too_small_is_shared(setting):
    result, train, _ = assign(setting, SMALL, 4)
    asked = train.sum(axis=0)
    assert (asked > [50, 50, 8, 50]).tolist() == [False, False, True, False]
    assert result.shared == min(8, asked[2] - 8) > 0
    held, times = np.unique(np.concatenate(result.train), return_counts=True)
    assert set(SMALL[0][held[times > 1]]) == {2}


def test_a_class_with_fewer_samples_than_holders():
    setting = Pathological(classes=1, test_samples=5, share_samples=True)
    result, train, _ = assign(setting, pools([2, 90], [10, 10]), 6)
    assert sorted(train.max(axis=1)) == [1, 1, 1, 30, 30, 30]
    assert result.shared == 1


def test_shared_test_samples():
    """Five of two classes for each of four clients, where the pool has 15 of each."""
    result, _, test = assign(Pathological(test_samples=10), even(2, 50, 15), 4)
    assert (test == 5).all()
    assert result.shared_test == 10
    assert assign(Pathological(test_samples=10), even(2, 50, 20), 4)[0].shared_test == 0


def test_make_setting():
    assert make_setting("practical", groups=2, sizes=[30, 20]) == Practical(groups=2, sizes=(30, 20))
    assert make_setting("iid") == IID(samples=None, test_samples=100, share_samples=False)


@pytest.mark.parametrize(
    ("name", "parameters", "word"),
    [
        (
            "practicle",
            {},
            r"unknown setting 'practicle' \(did you mean 'practical'\?\); choose from dirichlet, iid",
        ),
        ("iid", {"beta": 1}, "unknown parameter of iid 'beta'; choose from samples, share_samples, test_samples"),
        ("iid", {"samples": 0}, "samples is 0; expected a whole number of 1 or more"),
        ("iid", {"test_samples": 0}, "test_samples is 0"),
        ("iid", {"share_samples": "yes"}, "share_samples is 'yes'; expected true or false"),
        ("pathological", {"classes": 0}, "classes is 0"),
        ("pathological", {"classes": 3, "samples": 2}, "samples with 3 classes is 2; expected .* 3 or more"),
        ("practical", {"groups": 0}, "groups is 0"),
        ("practical", {"share": 1.2}, r"share is 1\.2"),
        ("practical", {"sizes": 2.5}, r"sizes is 2\.5; expected a whole number"),
        (
            "practical",
            {"sizes": [100, 50]},
            r"sizes is \(100, 50\), but groups is 5; expected one .* each group",
        ),
        ("practical", {"groups": 2, "sizes": [100, 0]}, "sizes of group 1 is 0"),
        ("practical", {"groups": 2, "group_clients": 4}, "group_clients is 4, but groups is 2"),
        ("practical", {"groups": 2, "group_classes": [3, 0]}, "group_classes of group 1 is 0"),
        ("dirichlet", {"beta": 0}, "beta is 0; expected a finite number over 0"),
        ("dirichlet", {"min_samples": 0}, "min_samples is 0"),
    ],
)
def test_wrong_parameters(name, parameters, word):
    with pytest.raises(ValueError, match=word):
        make_setting(name, **parameters)


SHARE = r"or let clients share samples \(share_samples=true\)"


@pytest.mark.parametrize(
    ("setting", "data", "num_clients", "word"),
    [
        (IID(), SMALL, 0, "num_clients is 0"),
        (
            IID(),
            pools([1, 2], [9, 9]),
            4,
            rf"class \d has \d training samples, but the clients ask for \d.*{SHARE}",
        ),
        (
            IID(samples=99),
            even(1, 150, 9),
            2,
            rf"class 0 has 150 training .* ask for 198 of it; lower samples, .*{SHARE}",
        ),
        (
            IID(samples=160, share_samples=True),
            SMALL,
            1,
            "training pool has 158 samples, but a client asks for 160",
        ),
        (
            IID(test_samples=201),
            SMALL,
            2,
            "test pool has 200 samples, but a client asks for 201; lower test_samples",
        ),
        (Pathological(classes=5), SMALL, 3, "classes is 5, but there are 4 in all; lower classes"),
        (
            Pathological(classes=4),
            SMALL,
            9,
            rf"class 2 has 8 training samples, but the clients ask for 9 .*{SHARE}",
        ),
        (
            Pathological(classes=4, samples=40, share_samples=True),
            SMALL,
            2,
            "class 2 has 8 training samples, but client 0 asks for 10; lower samples or classes",
        ),
        (
            Pathological(),
            pools([9, 0, 9], [9, 9, 9]),
            2,
            "class 1 has no training samples; expected .* from 0 to 2",
        ),
        (
            Pathological(test_samples=80),
            even(2, 50, 20),
            2,
            "class 0 has 20 test samples, but client 0 asks for 40; lower test_samples",
        ),
        (
            Practical(groups=2, sizes=20, test_samples=4),
            SMALL,
            4,
            rf"class 2 has 8 training samples, but the clients ask for 20 of it; lower sizes, .*{SHARE}",
        ),
        (
            Practical(groups=2, sizes=40, test_samples=200, share_samples=True),
            even(4, 50, 70),
            4,
            "class 0 has 70 test samples, but client 0 asks for 80; lower test_samples",
        ),
        (Practical(), SMALL, 9, "4 classes are too few for 5 groups; lower groups"),
        (Practical(groups=3), SMALL, 2, "2 clients are too few for 3 groups; lower groups"),
        (Practical(groups=2), pools([9, 9, 0, 9], [9] * 4), 2, "class 2 has no training samples"),
        (
            Practical(groups=2, group_clients=(2, 3)),
            SMALL,
            4,
            "group_clients sums to 5, but there are 4 clients; change group_clients",
        ),
        (Practical(groups=2, group_classes=(2, 3)), SMALL, 4, "group_classes sums to 5, but there are 4 classes"),
        (
            Practical(groups=2, sizes=(20, 7)),
            SMALL,
            2,
            "client of group 1 has 7 samples, 1 for its 2 other classes, but each needs one; raise sizes",
        ),
        (
            Practical(groups=2, sizes=9, share=0.1),
            SMALL,
            2,
            "client of group 0 has 9 samples, 1 for its 2 dominating classes",
        ),
        (Practical(groups=1, sizes=3), SMALL, 2, "has 3 samples, 3 for its 4 dominating classes"),
        (
            Practical(groups=2),
            even(4, 5, 9),
            8,
            r"group \d has \d samples, .* use fewer clients .sizes are automatic",
        ),
        (
            Dirichlet(),
            SMALL,
            16,
            "pool has 158 samples, too few for 16 clients with at least 10 samples each; lower min_samples",
        ),
        (
            Dirichlet(beta=1e-3),
            SMALL,
            10,
            r"none of 1000 draws with beta 0\.001 gave 10 clients .*; raise beta, or lower",
        ),
        (
            Dirichlet(test_samples=201),
            SMALL,
            1,
            "client 0 asks for 201 test samples, but its classes have 200; lower",
        ),
    ],
)
def test_impossible_requests(setting, data, num_clients, word):
    with pytest.raises(ValueError, match=word):
        setting.assign(*data, num_clients, 0)


@pytest.mark.parametrize(
    ("labels", "train_pool", "test_pool", "seed", "word"),
    [
        ([0, 1, 1, 0], [0, 1, 2], [2, 3], 0, "training and the test pool have 1 positions in common"),
        ([0, 1, 1, 0], [], [2, 3], 0, "the training pool is empty"),
        ([0, 1, 1, 0], [0, 1], [], 0, "the test pool is empty"),
        (
            [0, 1, 1, 0],
            [0, 0],
            [2, 3],
            0,
            r"training pool is array\(\[0, 0\]\); expected distinct positions from 0 to 3",
        ),
        ([0, 1, 1, 0], [0, 1], [2, 4], 0, "test pool is .* expected distinct positions from 0 to 3"),
        ([0, 1, 1, 0], [-1, 1], [2, 3], 0, "training pool is .* expected distinct"),
        ([0, 1, 1, 0], [0.0, 1.0], [2, 3], 0, "training pool is .* expected distinct"),
        ([0, 1, -1, 0], [0, 1], [2, 3], 0, "labels are .* expected a vector of whole numbers from 0"),
        ([0.0, 1.0, 1.0, 0.0], [0, 1], [2, 3], 0, "labels are"),
        ([[0, 1], [1, 0]], [0], [1], 0, "labels are"),
        ([], [0], [1], 0, "labels are"),
        ([0, 1, 1, 0], [0, 1], [2, 3], -1, "seed is -1; expected a whole number of 0 or more"),
    ],
)
def test_wrong_labels_and_pools(labels, train_pool, test_pool, seed, word):
    with pytest.raises(ValueError, match=word):
        IID(test_samples=1).assign(np.array(labels), np.array(train_pool), np.array(test_pool), 1, seed)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_parameter_is_explained(name):
    explanations = explained(SETTINGS[name])
    assert list(explanations) == [field.name for field in fields(SETTINGS[name])]
    for parameter, about in explanations.items():
        assert about.meaning.endswith("."), parameter
        assert about.source, parameter
