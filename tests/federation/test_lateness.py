"""How long a round waits, and for whom."""

import math

from fedamp.config.reply_limits import Rules
from fedamp.federation.server.lateness import Lateness


def patience(lateness, answers, waiting, most=1e6):
    """Return after how many seconds a round is over, by halving; inf if it never is."""
    low, high = 0.0, most
    if not lateness.is_over(high, answers, waiting):
        return math.inf
    while high - low > 1e-6 * most:
        middle = (low + high) / 2
        low, high = (low, middle) if lateness.is_over(middle, answers, waiting) else (middle, high)
    return high


def test_a_round_is_over_when_all_have_answered():
    assert Lateness(Rules(min_silos=3)).is_over(0.1, [0.1, 0.1], [])


def test_who_has_never_answered_gets_the_whole_timeout_once():
    lateness = Lateness(Rules(min_silos=2, late_after=30))
    assert patience(lateness, [1.0, 2.0], [7]) == math.inf  # the round's own timeout ends it
    lateness.missed(7)
    assert abs(patience(lateness, [1.0, 2.0], [7]) - 30) < 2


def test_the_slowest_answer_counts_three_times_and_ones_own_last_one_twice():
    lateness = Lateness(Rules(min_silos=2, late_after=30))
    lateness.missed(7)
    assert abs(patience(lateness, [1.0, 100.0], [7]) - 300) < 2
    lateness.answered(7, 400.0)  # late, but now it is known how long it takes
    assert abs(patience(lateness, [1.0, 100.0], [7]) - 800) < 2
    lateness.missed(7)  # one silence does not make that unknown
    assert abs(patience(lateness, [1.0, 100.0], [7]) - 800) < 2


def test_a_round_waits_until_enough_have_answered_whoever_is_late():
    lateness = Lateness(Rules(min_silos=2))
    for node in range(6):
        lateness.missed(node)
    assert not lateness.is_over(1e6, [1.0], [1, 2])  # fewer than min_silos
    assert not lateness.is_over(1e6, [1.0, 1.0], [1, 2, 3])  # fewer than half
    assert lateness.is_over(1e6, [1.0, 1.0, 1.0], [1, 2, 3])


def test_one_patient_wait_holds_the_round():
    lateness = Lateness(Rules(min_silos=1, late_after=10))
    lateness.missed(1)
    lateness.answered(2, 60.0)
    assert not lateness.is_over(100, [1.0, 1.0], [1, 2])
    assert lateness.is_over(121, [1.0, 1.0], [1, 2])
