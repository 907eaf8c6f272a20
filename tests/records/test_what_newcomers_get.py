"""What is said about a newcomer: by how much, how sure, and never more than its test rows can carry."""

import numpy as np
import pytest

from fedamp.records.newcomers import COLUMNS, Newcomer, Newcomers, paired
from fedamp.report.newcomers import each_newcomer

ONE = Newcomer(
    "d", "accuracy", 5, 60, 100, 70.0, 80.0, 85.0, 85.0, "own", 4, 20, 5, 4.8, {"a": 0.7, "b": 0.0, "d": 0.3}
)


def of(**changes):
    return Newcomer.of({**ONE.to_dict(), **changes})


def test_it_comes_back_from_plain_values():
    assert Newcomer.of(ONE.to_dict()) == ONE
    both = Newcomers((ONE, of(name="e", chosen=60.0)))
    assert Newcomers.of(both.to_dict()) == both
    assert (both.mean("alone"), both.mean("chosen"), both.better, both.worse) == (70.0, 72.5, 1, 1)


def test_who_has_no_score_enters_no_mean():
    """None is a model that is not finite, but of an AUC it is nothing at all: such a model has an AUC of 0."""
    auc = {"metric": "auc", "alone": 0.5, "received": None, "own": 0.7, "chosen": 0.7}
    nothing = {"metric": "auc", "alone": None, "received": None, "own": None, "chosen": None}
    both = Newcomers((of(**auc), of(**nothing)))
    assert [both.mean(column) for column in COLUMNS] == [0.5, None, 0.7, 0.7]
    assert (both.better, both.worse) == (1, 0)
    assert each_newcomer(both).splitlines()[-1].split()[:5] == ["mean", "0.5", "–", "0.7", "0.7"]
    broken = Newcomers((ONE, of(chosen=None)))
    assert (broken.mean("alone"), broken.mean("chosen")) == (70.0, None)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "joining pays: +15.0 ± 4.8 points on 100 test rows (better on 20, worse on 5)"),
        (
            {"chosen": 55.0, "better": 5, "worse": 20},
            "joining does not pay: -15.0 ± 4.8 points on 100 test rows (better on 5, worse on 20)",
        ),
        (
            {"better": 8, "worse": 5, "chosen": 73.0},
            "whether joining pays can't be told: +3.0 ± 4.8 points on 100 test rows (better on 8, worse on 5)",
        ),
        (
            {"better": 0, "worse": 0, "chosen": 70.0, "error": 0.0},
            "joining changes nothing: +0.0 ± 0.0 points on 100 test rows (better on 0, worse on 0)",
        ),
        (  # one row right instead of wrong: all that a single row can say
            {"tested": 1, "better": 1, "worse": 0, "alone": 0.0, "chosen": 100.0, "error": None},
            "whether joining pays can't be told: +100.0 points on 1 test row (better on 1, worse on 0; so few rows say "
            "little)",
        ),
        (
            {"metric": "rmse", "alone": 2.0, "chosen": 1.5, "error": 0.1},
            "joining pays: +0.5 ± 0.1 in RMSE on 100 test rows (better on 20, worse on 5)",
        ),
        (  # by AUC a few rows weigh as much as all others: its own test says more than better and worse
            {"metric": "auc", "alone": 0.84, "chosen": 0.92, "better": 42, "worse": 14, "error": None, "p": 0.3},
            "whether joining pays can't be told: +0.08 in AUC on 100 test rows (better on 42, worse on 14)",
        ),
        (
            {"chosen": None},
            "whether joining pays can't be told: no score to compare on 100 test rows (better on 20, worse on 5)",
        ),
    ],
)
def test_the_verdict(changes, verdict):
    assert of(**changes).verdict == verdict


def test_whom_it_listens_to():
    assert ONE.listening() == "a 70%, itself 30%"
    assert of(weights=None).listening() is None
    assert of(weights={"a": 0.0, "d": 1.0}).listening() == "nobody but itself"
    many = {**{f"silo {i}": 0.1 for i in range(9)}, "d": 0.1}
    assert of(weights=many).listening().endswith("all others 40%, itself 10%")


def test_the_standard_error_of_a_gain():
    """Of right and wrong answers that of a mean of paired differences; of RMSE what resampling the rows gives."""
    stream = np.random.default_rng(0)
    home, alone = (stream.random(400) < share for share in (0.1, 0.3))
    better, worse, error = paired("accuracy", home.astype(float), alone.astype(float))
    assert (better, worse) == (int((alone & ~home).sum()), int((home & ~alone).sum()))
    assert error == pytest.approx(100 * (alone.astype(float) - home).std(ddof=1) / 20)
    home, alone = (stream.normal(0, scale, 400) ** 2 for scale in (1.0, 1.5))
    picks = stream.integers(0, 400, (4000, 400))
    gains = np.sqrt(alone[picks].mean(1)) - np.sqrt(home[picks].mean(1))
    assert paired("rmse", home, alone)[2] == pytest.approx(gains.std(), rel=0.1)
    assert paired("auc", home, alone)[2] is None
    assert paired("accuracy", np.ones(1), np.zeros(1)) == (0, 1, None)
    assert paired("rmse", np.array([np.nan, 1.0]), np.array([1.0, 1.0])) == (0, 1, None)
