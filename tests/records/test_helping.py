"""Who helps whom, from a run's lines: read as written, and said in a sentence."""

import pytest

from fedamp.records.helping import helping, in_a_sentence


def line(effective, rank=2.0, **more):
    m = len(effective)
    return {
        "round": 2, "spectrum": [5.0, 3.0, *[-0.1] * (m - 2)], "rank": rank, "noise": 0.5, "noise_share": 0.31,
        "self_weight": [0.5] * m, "effective_clients": effective, "expected_gain": [0.2] * m, **more,
    }  # fmt: skip


def said(effective, names=None, **more):
    found = helping([line(effective, **more)])
    assert found is not None
    return in_a_sentence(found, names)


def test_methods_that_do_not_say_have_nothing():
    assert helping([]) is None
    assert helping([{"round": 1, "self_weight": [0.5, 0.5]}]) is None
    before_the_probe = line([1.0, 1.0], spectrum=[0.0, 0.0], noise=0.0)
    assert helping([before_the_probe]) is None


def test_the_last_line_that_knows_counts():
    found = helping([line([1.0, 1.0, 1.0]), line([3.0, 2.0, 1.0]), {"round": 9}])
    assert found is not None
    assert found.others == [2.0, 1.0, 0.0]
    assert found.rank == 2


def test_a_federation_writes_gaps_and_its_own_order():
    found = helping([line([2.0, None, 2.0], spectrum=[-1.0, None, 4.0])])
    assert found is not None
    assert found.spectrum == [4.0, -1.0]
    assert found.others == [1.0, None, 1.0]
    assert in_a_sentence(found) == (
        "Clients differ in 2 directions; noise is 31 % of what differs; 2 clients listen to 1.0 others on average."
    )


@pytest.mark.parametrize(
    ("effective", "more", "expected"),
    [
        ([4.8, 4.8], {}, "Clients differ in 2 directions; noise is 31 % of what differs; 2 clients listen to 3.8 others"
         " on average."),
        ([3.0, 1.0, 1.0], {"rank": 1.0}, "Clients differ in 1 direction; noise is 31 % of what differs; 1 client"
         " listens to 2.0 others on average, 2 keep to themselves."),
        ([1.0, 1.0], {}, "Clients differ in 2 directions, and too much to help each other: everyone keeps to itself."),
        ([2.0] * 4, {"rank": 3.0, "spectrum": [23.1, 0.5, 0.2, 0.0]}, "Clients differ in 3 directions, in 2 of them"
         " by less than a model's noise; noise is 31 % of what differs; 4 clients listen to 1.0 others on average."),
        ([2.0, 2.0], {"spectrum": [0.9, 0.2]}, "Clients differ in 2 directions, in all of them by less than a model's"
         " noise; noise is 31 % of what differs; 2 clients listen to 1.0 others on average."),
        ([1.0, 1.0], {"rank": 1.0, "spectrum": [0.9, 0.0]}, "Clients differ in 1 direction, by less than a model's"
         " noise, and too much to help each other: everyone keeps to itself."),
        ([3.0, 3.0, 3.0], {"rank": 0.0}, "Nobody differs measurably: everyone gets the average."),
        (
            [2.0, 2.0, 1.0],
            {"rank": 0.0},
            "Nobody differs measurably: those who have probed and are heard get their average; 1 keeps to itself.",
        ),
        ([1.0, None], {"rank": 0.0}, "There is nobody to listen to: only one client has finished its probe."),
        ([1.0], {"rank": 0.0}, "There is nobody to listen to: there is only one client."),
        (
            [1.04, 1.0, 1.0],  # a weight of 2 % for others, which rounds to 0.0 of them
            {},
            "Clients differ in 2 directions, and too much to help each other: everyone keeps to itself.",
        ),
        ([1.05, 1.0], {"rank": 1.0}, "Clients differ in 1 direction; noise is 31 % of what differs; 1 client"
         " listens to 0.1 others on average, 1 keeps to itself."),
    ],
)  # fmt: skip
def test_the_sentence(effective, more, expected):
    assert said(effective, **more) == expected


@pytest.mark.parametrize(
    ("opposed", "names", "expected"),
    [
        ([3, 0, 1, 1, 1], None, "Client 0 learned the opposite of most others: they don't listen to each other."),
        ([3, 3, 2, 2, 2], ["A", "B", "C", "D", "E"], "A and B learned the opposite of most others: they don't listen "
         "to each other."),
        ([1, 1], None, "Clients 0 and 1 learned opposite things: those don't listen to each other."),
        ([5] * 10, None, "10 clients learned opposite things: those don't listen to each other."),
    ],
)  # fmt: skip
def test_opposites_are_named(opposed, names, expected):
    assert said([2.0] * len(opposed), names, opposed=opposed).endswith(f"average. {expected}")
    assert "opposite" not in said([2.0] * len(opposed), names, opposed=[0] * len(opposed))
