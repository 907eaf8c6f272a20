"""What is left to be run of the paper's tables, in the order in which it is worth running, and how long it takes.

First what others wait for: sizes and tuning. Then what fills a cell of the paper's tables that has no figure yet. Then
the other seeds and the robustness table. Of equal worth, the shortest first: GPU time comes in pieces. At the end of a
piece, what is shorter than what is left of it comes before what would be cut off.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from paper import experiments
from paper.estimates import DEVICE, Measured, measured
from paper.experiments import CHOICE_SEED, Cell
from paper.plans import SEEDS

NAMES = tuple(experiments.NAMES)


@dataclass(frozen=True)
class Step:
    """A run that is to be done."""

    cell: Cell
    seconds: float
    waits: bool  # for a size, or for tuning

    @property
    def order(self) -> tuple[bool, int, float]:
        """By this the steps are sorted."""
        return self.waits, _worth(self.cell), self.seconds


def _worth(cell: Cell) -> int:
    """Return how early a cell should be run, from 0."""
    kind = cell.table.partition("-")[0]
    if kind.startswith(("sizes", "tune")):
        return 0
    return 1 if kind.startswith(("table", "auto")) and cell.config.seed in (SEEDS[0], CHOICE_SEED) else 2


def steps(tables: Sequence[str] = NAMES, seen: Measured | None = None) -> list[Step]:
    """Return what is missing, and what will be once its sizes and knobs are known."""
    seen = measured(NAMES) if seen is None else seen
    found = []
    for name in tables:
        ready = {cell.label for cell in experiments.table(name)}
        cells = [cell for cell in experiments.table(name, awaited=True) if not cell.path.exists()]
        found += [Step(cell, seen.estimate(cell), cell.label not in ready) for cell in cells]
    return sorted(found, key=lambda step: step.order)


def in_order(cells: Collection[Cell], deadline: float = float("inf")) -> list[Cell]:
    """Return cells that can be run now in the order in which they are worth running, those that get done first.

    `deadline` is a time of `time.monotonic`.
    """
    seen, left = measured(NAMES), deadline - time.monotonic()
    todo = sorted((Step(cell, seen.estimate(cell), False) for cell in cells), key=lambda step: step.order)
    return [step.cell for step in sorted(todo, key=lambda step: step.seconds > left)]


def lines(tables: Sequence[str] = NAMES) -> Iterator[str]:
    """Return the list, with the minutes up to each run, and sums by table."""
    todo, minutes, waiting = steps(tables), 0.0, False
    for step in todo:
        if step.waits and not waiting:
            waiting = True
            yield "waiting for sizes or tuning (one run for each method; each of FedAMP's models may choose its own):"
        minutes += step.seconds / 60
        yield f"{step.seconds:7.0f} s {minutes:7.1f} min  {step.cell.table} {step.cell.label}"
    yield f"{len(todo)} runs, {minutes:.0f} minutes on an {DEVICE}; by table:"
    for name in dict.fromkeys(step.cell.table for step in todo):
        mine = [step.seconds for step in todo if step.cell.table == name]
        yield f"  {name}: {len(mine)} runs, {sum(mine) / 60:.1f} minutes"
