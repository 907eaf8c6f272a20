"""Statistics over clients, against scipy and numbers worked out by hand."""

import numpy as np
import pytest
import scipy.stats

from fedamp.report.stats import adjusted_rand_index, discovered_groups, order_by_group, wilcoxon_p
from run_folders import grouped_xi


def test_wilcoxon_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=30), rng.normal(0.3, size=30)
    p, note = wilcoxon_p(a, b)
    assert note == ""
    assert p == pytest.approx(scipy.stats.wilcoxon(a, b).pvalue)


def test_wilcoxon_of_five_gains_is_two_in_thirty_two():
    assert wilcoxon_p([1, 2, 3, 4, 5], [0] * 5) == (2 / 32, "")


def test_rounding_does_not_break_ties_or_make_differences():
    assert wilcoxon_p([0.3, 0.2, 0.1 + 0.2], [0.3, 0.2, 0.3]) == (None, "all clients equal")
    steps = wilcoxon_p([0.3, 0.2, 0.9, 0.5], [0.2, 0.1, 0.8, 0.6])
    assert steps == wilcoxon_p([3, 2, 9, 5], [2, 1, 8, 6])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        ([1.0, 2.0], [1.0, 2.0], "all clients equal"),
        ([1.0], [2.0], "fewer than 2 clients"),
        ([], [], "fewer than 2 clients"),
        ([1.0, np.nan], [2.0, 1.0], "fewer than 2 clients"),
    ],
)
def test_wilcoxon_says_why_there_is_no_p(a, b, word):
    assert wilcoxon_p(a, b) == (None, word)


@pytest.mark.filterwarnings("error")
def test_ties_and_zeros_give_a_p_without_a_warning():
    p, _ = wilcoxon_p([5, 5, 5, 6, 7, 7, 8], [5, 5, 4, 5, 6, 6, 7])
    assert p is not None
    assert 0 < p < 0.1


def test_wilcoxon_refuses_unequal_lengths():
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\)"):
        wilcoxon_p([1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),
        ([0, 0, 1, 1], [0, 0, 1, 2], 4 / 7),  # scikit-learn's documented example, 0.57
        ([0, 0, 1, 1], [0, 1, 0, 1], -0.5),
        ([0, 0, 1, 1], [0, 0, 0, 0], 0.0),
        ([0, 0, 0], [5, 5, 5], 1.0),
        ([0, 1, 2], [0, 1, 2], 1.0),
        ([0], [0], 1.0),
        ([], [], 1.0),
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2], 0.24242424),  # Hubert and Arabie's formula, by hand
    ],
)
def test_rand_index_by_hand(a, b, value):
    assert adjusted_rand_index(a, b) == pytest.approx(value)
    assert adjusted_rand_index(b, a) == pytest.approx(value)


def test_random_groups_have_a_rand_index_about_zero():
    rng = np.random.default_rng(0)
    values = [adjusted_rand_index(rng.integers(5, size=60), rng.integers(5, size=60)) for _ in range(200)]
    assert abs(np.mean(values)) < 0.01


@pytest.mark.parametrize("number", [3, None])
def test_groups_are_found_in_the_weights(number):
    groups = [0, 1, 2, 0, 1, 2, 0, 1, 2]
    noise = np.random.default_rng(0).uniform(0.95, 1.05, size=(9, 9))
    found = discovered_groups(grouped_xi(2, groups)[1] * noise, number)
    assert found.tolist() == groups
    assert order_by_group(found).tolist() == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_weights_that_tell_nothing_make_no_groups():
    assert discovered_groups(np.full((4, 4), 0.25)).tolist() == [0, 0, 0, 0]
    assert discovered_groups(np.full((4, 4), 0.25), 2).tolist() == [0, 0, 0, 0]
    assert discovered_groups(np.eye(4), 2).tolist() == [0, 1, 2, 3]
    assert discovered_groups(np.ones((1, 1))).tolist() == [0]
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        discovered_groups(np.ones((2, 3)))
