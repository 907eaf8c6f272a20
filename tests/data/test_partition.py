"""What holds of every setting: no sample where it shouldn't be, the seed decides, and requests that can't be met."""

from dataclasses import fields

import numpy as np
import pytest
from dealt import SEEDS, SMALL, assign, even, pools, quick
from hypothesis import given

from fedamp.data.partition import IID, SETTINGS, Dirichlet, Pathological, Practical, make_setting
from fedamp.fields import explained

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
        ("iid", {"beta": 1}, "unknown parameter 'beta' of iid; choose from samples, share_samples, test_samples"),
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
        ("dirichlet", {"beta": 0}, "beta is 0; expected a finite number above 0"),
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
        (
            Practical(),
            SMALL,
            9,
            "4 classes are too few for 5 groups; lower groups .--set setting.groups=4; in Python setting={'name'",
        ),
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
            Practical(groups=2, share=0.5),
            even(4, 25, 9),
            100_000,
            "clients is 100000, too many for 100 training samples of 4 classes; expected up to 20, who get",
        ),
        (
            Practical(groups=2, group_clients=(4, 4)),
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
        ([0, 1, 1, 0], [0, 1], [2, 3], -1, "seed is -1; expected a whole number from 0 to 2"),
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
