"""Methods that differ only in which models are scored: they are trained once, and scored twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fedamp.config import Named, RunConfig
from fedamp.errors import UserError
from fedamp.files import write_json
from fedamp.methods import METHODS
from fedamp.records.folder import RunFolder
from fedamp.records.reading import BEST, DESCRIPTION, INPUTS, MODELS, RESULT, SCHEMA, STATE, XI, read_run
from fedamp.records.summaries import counted_clients, score_table, summarise
from fedamp.runs.compare.planning import Planned
from fedamp.runs.in_use.loading import recorded
from fedamp.runs.metric_table import metric_table
from fedamp.runs.setup import Setup

ELSEWHERE = {"group", "when", "scored"}
"""What a method may change of the one that it is made from and still have its trajectory."""


def trained_as(name: str) -> str | None:
    """Return the method whose trajectory this one scores at other models, if there is one.

    >>> trained_as("fedavg-ft"), trained_as("fedprox")
    ('fedavg', None)
    """
    kind = METHODS.get(name)
    if kind is None:  # a user's own
        return None
    changed = {key for key in vars(kind) if not key.startswith("_")}
    if changed - ELSEWHERE:
        return None
    return next((other for other, parent in METHODS.items() if parent is kind.__base__), None)


def twin_of(run: Planned, runs: Iterable[Planned]) -> Planned | None:
    """Return the run of this comparison that has the same trajectory and is trained, if there is one."""
    if run.config.alone or run.config.newcomers:  # alone is compared with the models that count, and those differ
        return None
    twin = trained_as(run.config.method.name)
    wanted = replace(run.config, method=Named(twin or "", run.config.method.parameters))
    return next((other for other in runs if twin and other.config == wanted), None)


def score_elsewhere(source: Path, target: Path, config: RunConfig, setup: Setup) -> None:
    """Write a finished run's record again as that of a method that scores the same trajectory at other models."""
    record = read_run(source)
    if record.result is None:
        raise UserError(f"{source} did not finish; {target.name} needs it")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in (MODELS, BEST, XI, SCHEMA, INPUTS, STATE):
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    RunFolder(target).rewrite(record.lines)
    metric = record.result["metric"]
    table = score_table(record.lines, METHODS[config.method.name].scored, metric)
    counted = counted_clients(table.shape[1], config.poisoned)
    summary = summarise(table, metric, counted)
    result = {
        **record.result,
        "method": config.method.name,
        "scored": METHODS[config.method.name].scored,
        **summary.to_dict(),
        "seconds": 0.0,
        "trained_as": record.result["method"],
    }
    # What clients take home is another entry here, so every other metric of it is scored again, too.
    again = replace(record, path=target, result=result)
    home = recorded(again, config, setup.method, setup.trainer.model, setup.schema).chosen.models
    rows = home.to(setup.w.params.device)
    result["metrics"] = {name: each.to_dict() for name, each in metric_table(setup, rows, counted).items()}
    write_json(target / DESCRIPTION, config.to_dict())
    write_json(target / RESULT, result)  # last of all: its presence says that the rest is whole
