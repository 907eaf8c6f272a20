"""Several methods and seeds over one setting, in one folder: what a claim of "better" rests on."""

from fedamp.runs.compare.choosing import choose, settle, validation_score
from fedamp.runs.compare.planning import (
    PLAN,
    Planned,
    digest,
    method_names,
    overrides_for,
    parse_grid,
    plan,
    read_plan,
)
from fedamp.runs.compare.playing import check_possible, play_all

__all__ = [
    "PLAN",
    "Planned",
    "check_possible",
    "choose",
    "digest",
    "method_names",
    "overrides_for",
    "parse_grid",
    "plan",
    "play_all",
    "read_plan",
    "settle",
    "validation_score",
]
