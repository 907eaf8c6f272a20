"""A federation's round as a line: in the order of the members, whatever the order in which silos came."""

import pytest
import torch

pytest.importorskip("flwr")

from fedamp.federation.plan import Member
from fedamp.federation.server.observer import PlayedRound
from fedamp.federation.server.round_lines import padded, round_line
from fedamp.methods.base import ABOUT, SPECTRUM

MEMBERS = [Member("north", 0, "a"), Member("south", 1, "b"), Member("east", 2, "c")]


def line_of(diagnostics, order=("c", "b", "a")):
    played = PlayedRound(1, {}, {}, {"events": ["for all"], **diagnostics}, order, 1.0, 0.1)
    return round_line(played, MEMBERS, "accuracy")


def test_a_warning_about_one_silo_names_that_silo():
    """The method knows rows, in the order in which silos came: the last row is the first member's."""
    assert line_of({ABOUT: [(2, "went too far")]})["events"] == ["for all", "north: went too far"]


def test_a_warning_about_several_silos_is_told_once():
    said = [(2, "went too far"), (0, "is odd"), (1, "went too far")]
    assert line_of({ABOUT: said})["events"] == ["for all", "north, south: went too far", "east: is odd"]


def test_numbers_of_silos_are_placed_and_a_spectrum_is_not():
    line = line_of({"expected_gain": torch.tensor([0.3, 0.2]), SPECTRUM: [9.0, 1.0, -0.5]}, order=("c", "a"))
    assert line["expected_gain"] == pytest.approx([0.2, None, 0.3], abs=1e-6)
    assert line[SPECTRUM] == [9.0, 1.0, -0.5]


def test_a_line_from_before_a_silo_joined_has_room_for_it():
    before = {"round": 1, "present": [True], "expected_gain": [0.2], "opposed": [0.0], SPECTRUM: [1.0]}
    after = padded(before, 2)
    assert after["present"] == [True, False]
    assert (after["expected_gain"], after["opposed"]) == ([0.2, None], [0.0, None])
    assert after[SPECTRUM] == [1.0]
