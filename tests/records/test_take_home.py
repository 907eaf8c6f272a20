"""Which models clients take home: a choice by everyone's held-out samples together."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedamp.records.take_home import ENTRIES, HeldOut, TakeHome, pooled


def lines(metric="accuracy", first=None, **tables):
    """Return rounds' lines from each entry's scores (and losses) by line and client; line 0 is of the first models."""
    clients = len(next(iter(tables.values()))[0][0])
    found = [{"round": 0, "validation": {e: {metric: [0.0] * clients, "loss": [9.0] * clients} for e in tables}}]
    for k in range(max(map(len, tables.values()))):
        scored = {
            entry: {metric: list(table[k][0]), "loss": list(table[k][1])}
            for entry, table in tables.items()
            if k < len(table)
        }
        found.append({"round": k + 1, "validation": scored})
    return found


def chosen(sizes, rounds, metric="accuracy", scored="own"):
    one = HeldOut(tuple(sizes), metric, scored).over(rounds).choice
    return None if one is None else (one.entry, one.round)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 2, 30), (7, 49, 3)])
def test_pooling_is_scoring_all_samples_as_one(sizes):
    stream = np.random.default_rng(0)
    right = [stream.integers(0, 2, size).astype(float) for size in sizes]
    losses = [stream.exponential(1, size) for size in sizes]
    means, lost = (np.array([each.mean() for each in values]) for values in (right, losses))
    assert pooled(means, lost, sizes, "accuracy") == pytest.approx(
        [np.concatenate(right).mean(), np.concatenate(losses).mean()]
    )
    errors = [stream.normal(0, 3, size) for size in sizes]
    roots = np.array([np.sqrt((each**2).mean()) for each in errors])
    assert pooled(roots, lost, sizes, "rmse")[0] == pytest.approx(np.sqrt((np.concatenate(errors) ** 2).mean()))


def test_a_client_without_weight_changes_nothing_whatever_it_says():
    for bad in (0.0, np.nan, np.inf):
        scores, losses = np.array([0.5, bad, 0.25]), np.array([1.0, bad, 2.0])
        assert pooled(scores, losses, (2, 0, 2), "accuracy") == [0.375, 1.5]


def test_silos_with_one_sample_decide_together():
    """Each alone can only say right or wrong; together it is 2 of 5 against 4 of 5."""
    own, received = [1, 1, 0, 0, 0], [1, 1, 1, 1, 0]
    rounds = lines(own=[(own, [1.0] * 5)] * 2, received=[(own, [1.0] * 5), (received, [1.0] * 5)])
    assert chosen([1] * 5, rounds) == ("received", 1)


def test_a_client_counts_by_its_samples():
    rounds = lines(own=[([1.0, 0.4], [1.0, 1.0])] * 2, received=[([0.0, 0.6], [1.0, 1.0])] * 2)
    assert chosen([1, 1], rounds) == ("own", 1)
    assert chosen([1, 9], rounds) == ("received", 1)


def test_a_poisoned_client_does_not_count():
    rounds = lines(own=[([1.0, 0.4], [1.0, 1.0])] * 2, received=[([0.0, 0.6], [1.0, 1.0])] * 2)
    assert chosen([5, 5], rounds) == ("own", 1)
    assert chosen([0, 5], rounds) == ("received", 1)
    assert chosen([0, 0], rounds) is None


def test_equal_scores_are_decided_by_the_loss_then_by_the_methods_own_entry_then_by_the_round():
    better, same, own = ([0.5], [0.9]), ([0.5], [1.0]), ([0.5], [1.0])
    assert chosen([2], lines(own=[own, own], received=[same, same, better])) == ("received", 2)
    assert chosen([2], lines(own=[own, better], received=[same, same, same])) == ("own", 2)
    tie = lines(own=[own, own], received=[same, same, same], between=[same, same])
    assert chosen([2], tie) == ("own", 1)
    assert chosen([2], tie, scored="received") == ("received", 1)
    assert chosen([2], tie, scored="between") == ("between", 1)


def test_equal_counts_of_right_answers_are_equal():
    """Four right answers are four, whoever gives them: sums that differ in the sixteenth digit are no difference."""
    sizes = (7, 49, 3)
    one, other = np.array([2 / 7, 2 / 49, 0]), np.array([0, 4 / 49, 0])
    scores = [pooled(way, np.ones(3), sizes, "accuracy")[0] for way in (one, other)]
    assert scores[0] > scores[1], "no sum is off here: the test shows nothing"
    assert chosen(sizes, lines(own=[(one, [1.0] * 3)], between=[(other, [0.5] * 3)])) == ("between", 1)


def test_of_errors_the_lowest_and_by_their_squares():
    """The mean error of own is lower, the error on all samples is not: one client is far off."""
    rounds = lines("rmse", own=[([0.0, 5.0], [1.0, 1.0])] * 2, received=[([3.0, 3.0], [1.0, 1.0])] * 2)
    assert chosen([1, 1], rounds, "rmse") == ("received", 1)
    assert HeldOut((1, 1), "rmse", "own").over(rounds).best["own"].score == pytest.approx(math.sqrt(12.5))


def test_what_was_received_first_is_nobodys_result():
    rounds = lines(own=[([0.1], [1.0]), ([0.2], [1.0])], received=[([1.0], [0.1]), ([0.3], [1.0]), ([0.4], [1.0])])
    assert chosen([4], rounds) == ("received", 2)
    assert chosen([4], rounds[:3]) == ("received", 1)
    assert chosen([4], rounds[:2]) == ("own", 1)
    assert chosen([4], rounds[:1]) is None


def test_an_absent_client_keeps_its_last_value():
    there = lines(own=[([0.5, 1.0], [1.0, 2.0]), ([0.6, 1.0], [1.0, 2.0])])
    away = lines(own=[([0.5, 1.0], [1.0, 2.0]), ([0.6, None], [1.0, None])])
    assert HeldOut((3, 3), "accuracy", "own").over(there).best == HeldOut((3, 3), "accuracy", "own").over(away).best


def test_as_long_as_a_client_has_no_score_there_is_no_choice():
    late = lines(own=[([0.9, None], [1.0, None]), ([0.5, 0.5], [1.0, 1.0])])[1:]
    assert chosen([3, 3], late[:1]) is None
    assert chosen([3, 3], late) == ("own", 2)
    assert chosen([3, 0], late) == ("own", 1)


def test_what_is_not_finite_is_never_chosen_over_what_is():
    rounds = lines(
        "rmse", own=[(["inf", 1.0], [None, 1.0]), ([9.0, 1.0], [1.0, 1.0])], between=[(["inf", 1.0], [1, 1])]
    )
    assert chosen([1, 1], rounds, "rmse") == ("own", 2)
    assert chosen([1, 1], rounds[:2], "rmse") is None
    tied = lines(own=[([0.0], [None])], between=[([0.0], [3.0])])  # a loss of None beside a score: not finite
    assert chosen([1], tied) == ("between", 1)


def test_lines_one_by_one_are_all_lines_and_other_entries_are_no_candidates():
    stream = np.random.default_rng(3)
    tables = {entry: [(stream.random(4), stream.random(4)) for _ in range(6)] for entry in (*ENTRIES, "alone")}
    tables["alone"] = [(np.ones(4), np.zeros(4))] * 6
    rounds, sizes = lines(**tables), (5, 1, 2, 7)
    whole, step = HeldOut(sizes, "accuracy", "own").over(rounds), HeldOut(sizes, "accuracy", "own")
    for line in rounds:
        step = step.after(line)
    assert (step.best, step.choice) == (whole.best, whole.choice)
    everyone = [
        (entry, k + (entry != "received"), np.average(scores, weights=sizes))
        for entry in ENTRIES
        for k, (scores, _) in enumerate(tables[entry])
        if entry != "received" or k
    ]
    assert (whole.choice.entry, whole.choice.round) == max(everyone, key=lambda one: one[2])[:2]


def test_no_choice_depends_on_test_scores():
    rounds = lines(own=[([0.5], [1.0])] * 3, received=[([0.4], [1.0])] * 3)
    with_test = [{**line, "test": {"own": {"accuracy": [k / 9], "loss": [0.0]}}} for k, line in enumerate(rounds)]
    assert chosen([3], with_test) == chosen([3], rounds)


def test_a_record_gives_back_what_was_written():
    said = HeldOut((2, 0), "rmse", "own").over(lines("rmse", own=[([1.5, 2.0], [None, 1.0])]))
    home = TakeHome.of_choice("chosen", said, [2.0, math.inf])
    assert (home.mean, home.entry, home.round) == (2.0, "own", 1)
    assert TakeHome.of(home.to_dict(), "rmse") == home
    assert home.to_dict()["scores"] == [2.0, None]
    in_percent = TakeHome.of_choice("scored", replace(said, metric="accuracy"), [50.0, 0.0])
    assert in_percent.held_out["own"].score == 150.0
