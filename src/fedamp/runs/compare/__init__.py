"""Several methods and seeds over one setting, in one folder: what a claim of "better" rests on."""

from fedamp.runs.compare.choosing import choose, settle, validation_score
from fedamp.runs.compare.grid import Axis, at_point, axis_of, parse_axes, points_of
from fedamp.runs.compare.planning import (
    PLAN,
    Planned,
    check_against,
    digest,
    effort,
    hyperparameters,
    method_names,
    plan,
    read_plan,
)
from fedamp.runs.compare.playing import check_possible, play_all

__all__ = [
    "PLAN",
    "Axis",
    "Planned",
    "at_point",
    "axis_of",
    "check_against",
    "check_possible",
    "choose",
    "digest",
    "effort",
    "hyperparameters",
    "method_names",
    "parse_axes",
    "plan",
    "play_all",
    "points_of",
    "read_plan",
    "settle",
    "validation_score",
]
