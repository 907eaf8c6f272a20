"""What newcomers get, as a small table: one run's, each by itself, or by method over the seeds of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from fedamp.config.metrics import info
from fedamp.records.newcomers import COLUMNS, Newcomer, Newcomers
from fedamp.records.reading import RunRecord
from fedamp.report.groups import Group, make_blocks
from fedamp.report.render import NOTHING, aligned

NOTE = (
    "Newcomers are clients that took no part in the run and joined it afterwards, each by itself, for {rounds} rounds; "
    "nobody else trained. Alone: trained alone for as many rounds. Chosen: what they take home. Means of test scores."
)


def each_newcomer(newcomers: Newcomers) -> str:
    """Return a line for each newcomer of a run, and their means."""
    rows = [[one.name, *_scores([one]), one.takes_home] for one in newcomers.each]
    rows.append(["mean", *_scores(newcomers.each), f"better {newcomers.better}, worse {newcomers.worse}"])
    return aligned([["newcomer", *_headings(newcomers.metric), "taken home"], *rows])


def by_method(runs: Sequence[RunRecord]) -> str | None:
    """Return a line for each method, over all newcomers of all seeds; None if no run had any."""
    parts, rounds = [], 0
    for block in make_blocks(runs):
        found = {group.label: each for group in block.groups if (each := _all_of(group))}
        if not found:
            continue
        rows = [
            [label, str(len(each.each)), *_scores(each.each), str(each.better), str(each.worse)]
            for label, each in found.items()
        ]
        rounds = next(iter(found.values())).each[0].rounds
        table = aligned([["method", "newcomers", *_headings(block.metric), "better than alone", "worse"], *rows])
        parts.append("\n".join([*([block.label] if block.label else []), table]))
    return "\n\n".join([*parts, NOTE.format(rounds=rounds)]) + "\n" if parts else None


def _all_of(group: Group) -> Newcomers | None:
    """Return the newcomers of all of a method's seeds."""
    results = [trial.record.result or {} for trial in group.trials]
    each = [one for result in results if "newcomers" in result for one in Newcomers.of(result["newcomers"]).each]
    return Newcomers(tuple(each)) if each else None


def _headings(metric: str) -> list[str]:
    known = info(metric)
    unit = known.unit or known.short
    return [f"{column} {unit}" for column in COLUMNS]


def _scores(newcomers: Sequence[Newcomer]) -> list[str]:
    """Return the mean of each column; nothing for what a method does not have."""
    cells = []
    for column in COLUMNS:
        mean = Newcomers(tuple(newcomers)).mean(column)
        percent = info(newcomers[0].metric).unit == "%"
        cells.append(NOTHING if mean is None else format(mean, ".2f" if percent else ".4g"))
    return cells
