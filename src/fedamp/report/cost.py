"""What a method costs: what travels, and how long it takes, read from the rounds' lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedamp.report.content import PageTable, TableLine
from fedamp.report.groups import Block, Group
from fedamp.report.run_scores import Trial

NOTHING = "–"
MEGABYTE = 1e6
HEADINGS = [
    *("method", "rounds", "MB up a round", "MB down a round", "MB in all"),
    *("seconds a round", "seconds in all"),
]


def costs(blocks: Sequence[Block]) -> list[PageTable]:
    """Return a table for each block: megabytes of all clients together, and seconds; means over the seeds."""
    return [
        PageTable(block.label, HEADINGS, [TableLine([group.label, *_cells(group)]) for group in block.groups])
        for block in blocks
    ]


def _cells(group: Group) -> list[str]:
    values = [
        _mean(group, lambda trial: _a_round(megabytes(trial, "up"))),
        _mean(group, lambda trial: _a_round(megabytes(trial, "down"))),
        _mean(group, lambda trial: _total(trial)),
        _mean(group, lambda trial: _a_round(round_seconds(trial))),
        _mean(group, lambda trial: trial.seconds),
    ]
    rounds = " to ".join(map(str, sorted({len(trial.scores) for trial in group.trials}))) or NOTHING
    return [rounds, *map(_text, values)]


def megabytes(trial: Trial, way: str) -> list[float]:
    """Return what travelled in each round, `up` to the server or `down` from it; nothing if that was not noted."""
    return [line["bytes"][way] / MEGABYTE for line in trial.record.lines if "bytes" in line]


def _total(trial: Trial) -> float | None:
    both = [*megabytes(trial, "up"), *megabytes(trial, "down")]
    return sum(both) if both else None


def round_seconds(trial: Trial) -> list[float]:
    """Return how long each round that was played took."""
    return [line["seconds"] for line in trial.record.lines if line["round"] >= 1 and line.get("seconds")]


def _a_round(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _mean(group: Group, value: Callable[[Trial], float | None]) -> float | None:
    """Return the mean over the seeds that have it."""
    known = [found for trial in group.trials if (found := value(trial)) is not None]
    return _a_round(known)


def _text(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
