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
        _mean(group, lambda trial: _a_round([up for up, _ in trial.traffic])),
        _mean(group, lambda trial: _a_round([down for _, down in trial.traffic])),
        _mean(group, lambda trial: sum(map(sum, trial.traffic)) if trial.traffic else None),
    ]
    seconds = [
        _mean(group, lambda trial: _a_round(trial.round_seconds)),
        _mean(group, lambda trial: trial.seconds),
    ]
    lengths = [len(trial.scores) for trial in group.trials]
    rounds = " to ".join(map(str, sorted({min(lengths), max(lengths)}))) if lengths else NOTHING
    megabytes = [None if value is None else value / MEGABYTE for value in values]
    return [rounds, *map(_text, [*megabytes, *seconds])]


def _a_round(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _mean(group: Group, value: Callable[[Trial], float | None]) -> float | None:
    """Return the mean over the seeds that have it."""
    known = [found for trial in group.trials if (found := value(trial)) is not None]
    return _a_round(known)


def _text(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
