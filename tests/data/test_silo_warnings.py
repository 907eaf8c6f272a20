"""What is warned of because it may not be meant, and what is not."""

import numpy as np
import pytest

from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.targets import guess_task
from fedamp.data.silos.warnings import class_warnings, identifier_warnings, name_warnings, task_warnings


@pytest.mark.parametrize(
    ("y", "task"),
    [
        ([0, 1], "classification"),
        ([0.0, 1.0], "regression"),
        ([0.5, 1.0], "regression"),
        (["0", "1"], "classification"),
        ([True, False], "classification"),
    ],
)
def test_a_task_goes_by_type(y, task):
    assert guess_task([np.asarray(y)]) == task


def test_floats_beside_words_are_names():
    assert guess_task([np.array([1.0, 2.0]), np.array(["other"])]) == "classification"
    assert guess_task([np.array([1.5, 2.0]), np.array(["other"])]) == "regression"  # and then the word is an error


@pytest.mark.parametrize(
    ("different", "rows", "warned"),
    [(10, 10, False), (11, 11, True), (11, 22, False), (11, 21, True), (50, 1000, False), (51, 1000, True)],
)
def test_how_many_numbers_are_many(different, rows, warned):
    assert bool(class_warnings([str(number) for number in range(different)], rows)) == warned
    y = np.arange(rows) % different
    assert bool(task_warnings([y], "auto")) == warned
    assert task_warnings([y], "classification") == []


def test_words_beside_numbers():
    assert class_warnings(["9", "10", "other"], 3) == []
    assert class_warnings(["inf", "9" * 400], 3) == []  # what a schema from elsewhere may hold
    assert "besides 'n/a'" in class_warnings(["25.5", "346", "n/a"], 3)[0]


def test_names_that_are_said_alike():
    assert name_warnings("labels", {"u": ["ill", "well"], "v": ["ill"]}) == []
    assert name_warnings("labels", {"u": ["ill", "well"]}) == []
    spellings = {"u": ["type 1", "type 2"], "v": ["Type 1", "type  2"], "w": ["type1", "type 2"]}
    (warned,) = name_warnings("labels", spellings)
    assert "'type 1' (in 'u') and 'Type 1' (in 'v') and 'type1' (in 'w')" in warned
    (warned,) = name_warnings("labels", {"u": ["a"], "v": ["b"]})
    assert "labels of 'u', 'v' occur in no other silo" in warned


def test_columns_that_say_whose_row_it_is():
    """Of words and of numbers, by one line each that says how to leave it out; measurements and dates are fine."""
    stream = np.random.default_rng(0)
    columns = ("patient", "record", "age", "admitted")
    silos = [
        RawSilo(
            name,
            np.stack([np.arange(30) + 1, stream.integers(20, 90, 30), np.arange(30) + 19000], axis=1).astype(float),
            np.array(["no", "yes"] * 15),
            columns,
            {"patient": np.array([f"{name}{i}" for i in range(30)])},
            "ill",
            dates=("admitted",),
        )
        for name in "ab"
    ]
    words, numbers = identifier_warnings(silos)
    assert "column 'patient' looks like an identifier (60 different words in 60 rows)" in words
    assert "--drop patient (drop= in Python)" in words
    assert "column 'record' looks like an identifier (all different and in sequence, like row numbers)" in numbers
