"""What the page says about the privacy of single samples: promised, spent by round, and by client."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedamp.records.client_names import client_name
from fedamp.records.privacy import EPSILON, Promised, epsilon_now, rounded_up
from fedamp.records.reading import RunRecord
from fedamp.report.content import PageTable, TableLine
from fedamp.report.groups import Block
from fedamp.report.run_scores import Trial

HEADINGS = ["client", "training samples", "chance in a minibatch", "noise, in clips", "epsilon"]


@dataclass(frozen=True)
class Protected:
    """One run's privacy: what was spent in a sentence, how samples were protected, and a table of its clients."""

    text: str
    how: str
    table: PageTable


@dataclass(frozen=True)
class PrivacySection:
    """All runs whose samples were protected, and JSON for a plot of epsilon by round ("" if no epsilon is known)."""

    runs: list[Protected]
    plot: str


def privacy_section(blocks: Sequence[Block]) -> PrivacySection | None:
    """Return what to say about the privacy of single samples; None if no run protected them."""
    found = [
        (", ".join(filter(None, [group.label, f"seed {trial.seed}", block.label])), trial)
        for block in blocks
        for group in block.groups
        for trial in group.trials
        if trial.facts.privacy is not None
    ]
    if not found:
        return None
    curves = [curve for name, trial in found for curve in _curves(name, trial, alone=len(found) == 1)]
    asked = {Promised.of(trial.facts.privacy or {}).epsilon for _, trial in found}
    plot = {"curves": curves, "asked": sorted(each for each in asked if each is not None)}
    return PrivacySection([_protected(*each) for each in found], json.dumps(plot) if curves else "")


def _curves(name: str, trial: Trial, alone: bool) -> list[dict[str, Any]]:
    """Return epsilon by round: of the client that has spent most, and of a run alone on the page also the least."""
    known = [line for line in trial.record.lines if EPSILON in line and None not in line[EPSILON]]
    if not known:
        return []
    rounds, kinds = [line["round"] for line in known], {"most": max, "least": min} if alone else {"": max}
    return [
        {"name": f"{name}, {kind}" if kind else name, "x": rounds, "y": [pick(line[EPSILON]) for line in known]}
        for kind, pick in kinds.items()
    ]


def _protected(name: str, trial: Trial) -> Protected:
    promised, facts, spent = Promised.of(trial.facts.privacy or {}), trial.facts, epsilon_now(trial.record.lines)
    sizes = facts.sizes or [None] * len(promised.noise)
    lines = [
        TableLine([client_name(i, facts.names), str(sizes[i]), f"{rate:.3g}", f"{noise:.3g}", _epsilon(spent, i)])
        for i, (rate, noise) in enumerate(zip(promised.rates, promised.noise, strict=True))
    ]
    counted = "" if promised.accountant is None else f" Counted by {promised.accountant}."
    plan = f"{promised.plan[:1].upper()}{promised.plan[1:]}."
    return Protected(f"{name}: {promised.words(spent, facts.names)}", plan + counted, PageTable("", HEADINGS, lines))


def _epsilon(spent: Sequence[float | None] | None, i: int) -> str:
    return "not known" if spent is None else rounded_up(spent[i])


def privacy_note(records: Sequence[RunRecord]) -> str | None:
    """Return what all runs of a comparison have spent at most, in a sentence; None if nothing was protected."""
    private = [run for run in records if run.facts.privacy is not None]
    if not private:
        return None
    found = [epsilon_now(run.lines) for run in private]
    promised = Promised.of(private[0].facts.privacy or {})
    if not all(found):
        return f"Samples were protected: {promised.words(None)}."
    most = max(math.inf if each is None else each for spent in found for each in spent or [])
    return (
        f"Samples were protected, in each run by the noise that its method takes: epsilon at most {rounded_up(most)} "
        f"at delta {promised.delta:g} for every client's single samples (add or remove one)."
    )
