"""The rows of a silo, made by hand: checked as those of a file are."""

import numpy as np
import pytest
from silo_files import one_line

from fedamp.data.silos.raw import RawSilo


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"words": {"u": np.array(["F", "M"])}}, "has words but no columns"),
        ({"columns": ("u", "u")}, "expected each name once"),
        ({"columns": ("u", "v", "w")}, "expected one number per row"),
        ({"columns": ("u", "v", "w"), "words": {"w": np.array(["F"])}}, "expected words for each of 2 rows"),
    ],
)
def test_silos_made_by_hand_are_checked_too(values, message):
    with pytest.raises(ValueError, match=message) as raised:
        RawSilo("a", np.zeros((2, 2)), np.array([0, 1]), **values)
    one_line(raised)
