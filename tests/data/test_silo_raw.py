"""The rows of a silo, made by hand: checked as those of a file are."""

import numpy as np
import pytest
from silo_files import one_line

from fedamp.data.silos.raw import RawSilo, word_counts


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"words": {"u": np.array(["F", "M"])}}, "has words but no columns"),
        ({"columns": ("u", "u")}, "expected each name once"),
        ({"columns": ("u", "v", "w")}, "expected one number per row"),
        ({"columns": ("u", "v", "w"), "words": {"w": np.array(["F"])}}, "expected words for each of 2 rows"),
        ({"columns": ("u", "v"), "dates": ("w",)}, "dates of silo 'a' name 'w'"),
        ({"dates": ("u",)}, "dates of silo 'a' name 'u'"),
    ],
)
def test_silos_made_by_hand_are_checked_too(values, message):
    with pytest.raises(ValueError, match=message) as raised:
        RawSilo("a", np.zeros((2, 2)), np.array([0, 1]), **values)
    one_line(raised)


def table(u, w, **more):
    return RawSilo("a", np.array([u]).T, np.zeros(len(u)), ("u", "w"), {"w": np.array(w)}, **more)


def test_which_cells_of_a_table_are_missing():
    some = table([1.0, np.nan, 3.0], ["F", "M", ""])
    assert {column: rows.tolist() for column, rows in some.missing.items()} == {
        "u": [False, True, False],
        "w": [False, False, True],
    }
    assert some.unknown == ()
    assert table([np.nan, np.nan], ["", ""]).unknown == ("u", "w")
    assert table([1.0, 2.0], ["F", "M"]).missing == {}


def test_words_are_coded_in_alphabetical_order():
    words, codes = table([0.0] * 4, ["b", "", "a", "b"]).coded["w"]
    assert (words, codes.tolist()) == (["", "a", "b"], [2, 0, 1, 2])


def test_missing_cells_are_no_words():
    assert word_counts([table([0.0] * 3, ["b", "", "b"]), table([0.0], [""])]) == {"w": {"b": 2}}
    assert word_counts([table([0.0], [""])]) == {}


@pytest.mark.parametrize(
    ("x", "columns", "message"),
    [
        ([[np.inf, 1.0]], ("u", "v"), "is inf in row 0 at"),
        ([[1.0, np.nan]], None, "is nan in row 0 at"),
    ],
    ids=["infinity in a table", "nan in an array"],
)
def test_what_is_not_finite_is_an_error(x, columns, message):
    with pytest.raises(ValueError, match=message) as raised:
        RawSilo("a", np.array(x), np.array([0]), columns)
    one_line(raised)


def test_a_label_is_never_missing():
    with pytest.raises(ValueError, match="y of silo 'a' is nan in row 1"):
        RawSilo("a", np.zeros((2, 1)), np.array([0.5, np.nan]), ("u",))
