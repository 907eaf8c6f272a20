"""When a run ends before its last round: it gets no better, or there is no time left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedamp.config import RunConfig
from fedamp.records.summaries import counted_clients, score_table
from paper.distil import mean_accuracies
from paper.experiments import WATCHED
from paper.outcomes import OUT_OF_TIME

LONG = 600
"""A run of this many rounds keeps what it has when the time is up: nobody runs it twice for that. A shorter one is
left for another call."""


@dataclass
class Watch:
    """The observer of one run: it collects the run's lines and decides whether to go on."""

    config: RunConfig
    patience: int | None = None  # rounds without a better mean after which it ends
    deadline: float = float("inf")  # of time.monotonic
    lines: list[dict[str, Any]] = field(default_factory=list)
    stopped: str | None = None  # why the run ends early
    out_of_time: bool = False  # so that what there is makes no result

    def __call__(self, line: Mapping[str, Any]) -> bool:
        """Keep the line, and return whether to go on."""
        self.lines[:] = [*(before for before in self.lines if before["round"] < line["round"]), dict(line)]
        if self.stopped is not None or self.out_of_time or line["round"] >= self.config.rounds:  # nothing to save
            return True
        if self._no_better():
            self.stopped = f"{self.patience} rounds brought no better mean"
        elif time.monotonic() > self.deadline and line["round"] > 0:
            if self.config.rounds >= LONG:
                self.stopped = OUT_OF_TIME
            else:
                self.out_of_time = True
        return self.stopped is None and not self.out_of_time

    def _no_better(self) -> bool:
        """Return whether none of the models that are in a table got better within the patience."""
        if self.patience is None:
            return False
        counted = counted_clients(self.config.clients, self.config.poisoned)
        entries = WATCHED.get(self.config.method.name, ("own",))
        return all(no_better(self.lines, entry, self.patience, counted) for entry in entries)


def no_better(lines: Sequence[Mapping[str, Any]], entry: str, patience: int, counted: Sequence[bool]) -> bool:
    """Return whether the last rounds brought no better mean than the rounds before them."""
    means = mean_accuracies(score_table(lines, entry), counted)
    return len(means) > patience and max(means[:-patience]) >= max(means[-patience:])
