"""What the page says about training alone: for each run with models trained alone, client by client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedamp.config.metrics import UNDEFINED
from fedamp.records.beside_alone import BesideAlone, score_text
from fedamp.records.client_names import client_name
from fedamp.report.content import PageTable, TableLine
from fedamp.report.groups import Block
from fedamp.report.run_scores import Trial

HEADINGS = ["client", "held out: home", "held out: alone", "samples", "p", "test: home", "test: alone"]


@dataclass(frozen=True)
class Finding:
    """One run's finding in a line, and its table."""

    text: str
    table: PageTable


def against_alone(blocks: Sequence[Block]) -> list[Finding]:
    """Return a finding for each run beside which models were trained alone."""
    return [
        _finding(trial, ", ".join(filter(None, [group.label, f"seed {trial.seed}", block.label])))
        for block in blocks
        for group in block.groups
        for trial in group.trials
        if (trial.record.result or {}).get("alone")
    ]


def _finding(trial: Trial, run: str) -> Finding:
    undefined = trial.facts.undefined or ()
    found, names = BesideAlone.of((trial.record.result or {})["alone"]), trial.facts.names
    lines = [TableLine([client_name(i, names), *_cells(found, i, i in undefined)]) for i in range(len(found.home.test))]
    return Finding(f"{run}: {found.headline(names)}", PageTable("", HEADINGS, lines))


def _cells(found: BesideAlone, i: int, undefined: bool) -> list[str]:
    both = (found.home, found.alone)
    test = [UNDEFINED if undefined else score_text(models.test[i], found.metric) for models in both]
    if found.samples is None or found.p is None:
        return ["", "", "0", "", *test]
    held = [score_text((models.validation or [])[i], found.metric) for models in both]
    worse = " (worse off)" if i in found.worse_off else ""
    return [*held, str(found.samples[i]), f"{found.p[i]:.2g}{worse}", *test]
