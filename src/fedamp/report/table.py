"""The comparison: a row for each method, over seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.errors import UserError
from fedamp.records.reading import RunRecord
from fedamp.records.summaries import higher_is_better, worse_off
from fedamp.records.take_home import SYMBOLS
from fedamp.report.groups import Block, Group, make_blocks, what_differs, word_for
from fedamp.report.run_scores import Trial
from fedamp.report.stats import wilcoxon_p

ALONE = "separate"
"""The method that the others are measured against: every client trains alone."""


@dataclass(frozen=True)
class Row:
    """A method over its seeds; None if there is no number."""

    block: str  # what sets its setting apart from the others; empty if there is only one
    method: str
    training: str  # rounds, learning rate and the like, if they differ between methods of the block
    seeds: list[int]
    metric: str  # a name of `config.metrics`; a score with the unit % is in percent
    best: float | None  # mean over seeds of the best mean over clients: BMTA; for errors the lowest
    sd: float | None  # sample standard deviation of that over seeds; None with one seed
    last: float | None  # after the last round
    worst: float | None  # the worst client at the best round, mean over seeds
    tenth: float | None  # the score that nine clients in ten exceed
    worse_off: int | None  # clients worse off than with Separate, or where it was not run, than alone beside the method
    clients: int  # how many are counted
    against: str | None  # the method that p compares with
    p: float | None  # Wilcoxon's signed-rank test over clients, two-sided
    p_note: str  # why there is no p
    seconds: float | None  # mean over seeds
    unfinished: bool
    repeated: int  # runs left out because their seed was run already
    validated: float | None = None  # if samples are held out: mean of the models that count, in the round they choose
    chosen: float | None = None  # mean of the models that they choose to be taken home
    chosen_entries: str = ""  # which those are: w, u or the midpoint
    without_score: str = ""  # names of the clients whose test samples do not define the metric
    withheld: str = ""  # names of the silos that keep their scores at home
    tuned: str = ""  # of a grid: what validation chose for this method
    tried: int = 1  # of how many points

    @property
    def higher(self) -> bool:
        """Whether a higher score is the better one."""
        return higher_is_better(self.metric)


def comparison_table(runs: list[RunRecord], against: str | None = None) -> list[Row]:
    """Return a row for each method, setting by setting; p compares with `against`, by default with Separate."""
    return rows_of(make_blocks(runs), against)


def rows_of(blocks: Sequence[Block], against: str | None = None) -> list[Row]:
    """Return a row for each method of the blocks; see `comparison_table`."""
    known = list(dict.fromkeys(group.label for block in blocks for group in block.groups))
    names = {group.name for block in blocks for group in block.groups}
    if against is not None and against not in known and against not in names:
        raise UserError(f"against is {against!r}; choose from the methods that were run: {', '.join(known)}")
    return [row for block in blocks for row in _rows(block, against)]


def _rows(block: Block, against: str | None) -> list[Row]:
    missing = f"{against} was not run here" if against else ""
    tuned = {key for group in block.groups for key in group.tuned}  # the table has these in a column of their own
    ways = [{key: each for key, each in group.training.items() if key not in tuned} for group in block.groups]
    rows = []
    for group, training in zip(block.groups, what_differs(ways), strict=True):
        alone = counterpart(block, ALONE, group, strict=False)
        other = counterpart(block, against or ALONE, group, strict=against is not None)
        rows.append(_row(block, group, training, alone, other, missing))
    return rows


def counterpart(block: Block, method: str, group: Group, strict: bool = False) -> Group | None:
    """Return the group to compare with; if that method was run in several ways, the one trained most similarly."""
    named = [other for other in block.groups if other.label == method]
    named = named or [other for other in block.groups if other.name == method]
    if not named:
        return None
    alike = [sum(other.training[key] == value for key, value in group.training.items()) for other in named]
    nearest = [other for other, count in zip(named, alike, strict=True) if count == max(alike)]
    if strict and len(nearest) > 1:
        labels = " or ".join(repr(other.label) for other in nearest)
        raise UserError(f"against is {method!r}, which was run with several sets of hyperparameters; give {labels}")
    return nearest[0]


def _row(block: Block, group: Group, training: str, alone: Group | None, other: Group | None, missing: str) -> Row:
    trials = group.trials
    bests = [trial.summary.best for trial in trials]
    worse: int | None = None
    if (pair := _beside(group) if alone is None else None if alone is group else _paired(group, alone)) is not None:
        worse = worse_off(pair[0].tolist(), pair[1].tolist(), block.higher)
    p, note = (None, missing) if other is None else p_between(group, other)
    return Row(
        block=block.label,
        method=group.label,
        training=training,
        seeds=[trial.seed for trial in trials],
        metric=block.metric,
        best=_mean(trials, lambda trial: trial.summary.best),
        sd=_deviation(bests),
        last=_mean(trials, lambda trial: trial.summary.last),
        worst=_mean(trials, lambda trial: trial.summary.worst),
        tenth=_mean(trials, lambda trial: trial.summary.tenth),
        worse_off=worse,
        clients=int(trials[0].counted.sum()) if trials else 0,
        against=None if other is None else other.label,
        p=p,
        p_note=note,
        seconds=_mean(trials, lambda trial: trial.seconds),
        unfinished=group.unfinished,
        repeated=group.repeated,
        without_score=", ".join(dict.fromkeys(who for trial in trials for who in trial.without_score)),
        withheld=", ".join(dict.fromkeys(who for trial in trials for who in trial.withheld)),
        tuned=", ".join(word_for(key, value) for key, value in group.tuned.items()),
        tried=group.records[0].tried,
        **_take_home(trials),
    )


def _take_home(trials: Sequence[Trial]) -> dict[str, Any]:
    """Return what held-out samples chose, over the seeds, if all of them have it."""
    homes = [trial.take_home for trial in trials if trial.take_home is not None]
    validated = [trial.validated for trial in trials if trial.validated is not None]
    if not trials or not len(homes) == len(validated) == len(trials):
        return {}
    entries = Counter(SYMBOLS[home.entry] for home in homes)
    words = ", ".join(entry if len(entries) == 1 else f"{entry} {count}" for entry, count in entries.items())
    return {
        "validated": float(np.mean(validated)),
        "chosen": float(np.mean([home.mean for home in homes])),
        "chosen_entries": words,
    }


def _deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation; it is infinite if a value is."""
    if len(values) < 2:
        return None
    if np.isinf(values).any():
        return math.inf
    return float(np.std(values, ddof=1))


def _mean(trials: Sequence[Trial], value: Callable[[Trial], float]) -> float | None:
    return float(np.mean([value(trial) for trial in trials])) if trials else None


def p_between(group: Group, other: Group) -> tuple[float | None, str]:
    """Return Wilcoxon's p over the clients of two methods, over the seeds that both have, or None and why not."""
    if other is group:
        return None, ""
    pair = _paired(group, other)
    return (None, "no seed in common") if pair is None else wilcoxon_p(*pair)


def _beside(group: Group) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the same of a method and the models trained alone beside it; None if a run has none."""
    both = [(trial, trial.summary, trial.alone_summary) for trial in group.trials]
    pairs = [(mine.per_client, alone.per_client) for _, mine, alone in both if alone is not None]
    if not pairs or len(pairs) < len(both) or len({len(trial.counted) for trial in group.trials}) > 1:
        return None
    counted = np.logical_and.reduce([trial.counted for trial in group.trials])
    mine, theirs = (np.mean(side, axis=0) for side in zip(*pairs, strict=True))
    return mine[counted], theirs[counted]


def _paired(a: Group, b: Group) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return each client's score by both, averaged over the seeds that both have: other seeds have other clients."""
    others = {trial.seed: trial for trial in b.trials}
    pairs = [(trial, others[trial.seed]) for trial in a.trials if trial.seed in others]
    if not pairs:
        return None
    trials = [trial for pair in pairs for trial in pair]
    if len({len(trial.counted) for trial in trials}) > 1:
        where = pairs[0][0].record.path.parent
        raise UserError(f"{a.label} and {b.label} in {where} have different numbers of clients; leave one of them out")
    both = np.logical_and.reduce([trial.counted for trial in trials])
    mine, theirs = (np.mean([trial.summary.per_client for trial in side], axis=0) for side in zip(*pairs, strict=True))
    return mine[both], theirs[both]
