"""A result, with what its clients would have had alone: both models of a client on the same held-out samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedamp.methods.alone_beside import ALONE
from fedamp.records.beside_alone import BesideAlone, Models, beside_alone
from fedamp.records.summaries import counted_clients, finite, in_unit
from fedamp.rows import Rows
from fedamp.runs.result import Kept, Result
from fedamp.runs.setup import Setup
from fedamp.training.evaluate import evaluate
from fedamp.training.sample_errors import sample_errors


def with_alone(result: Result, setup: Setup) -> Result:
    """Return the result with the comparison and its warnings; as it is, if nothing was trained alone beside it."""
    if ALONE not in result.last_models:
        return result
    home, alone = result.chosen, result.best_models.get(ALONE, result.last_models[ALONE])
    counted = counted_clients(len(setup.clients), result.config.poisoned)
    found = compared(setup, home, alone, counted)
    played = [line for line in result.history if "present" in line]
    reasons = [_reason(played[-1] if played else {}, i, home.models) for i in range(len(counted))]
    warnings = found.warnings(result.config.method.name, reasons, result.facts.names)
    return replace(result, alone=found, warnings=[*result.warnings, *warnings])


def compared(setup: Setup, home: Kept, alone: Kept, counted: list[bool]) -> BesideAlone:
    """Return what the held-out samples say about two models of each client; without any, only the test scores."""
    metric, models = setup.trainer.task.metric, (_scored(setup, home), _scored(setup, alone))
    if not setup.clients.validation:
        return BesideAlone(metric, *models)
    first, second = ([each.numpy() for each in _errors(setup, kept.models)] for kept in (home, alone))
    return beside_alone(metric, *models, (first, second), counted)


def _errors(setup: Setup, rows: Rows) -> list[Any]:
    return sample_errors(setup.trainer, setup.clients, rows, "validation")


def _scored(setup: Setup, kept: Kept) -> Models:
    if not setup.clients.validation:
        return Models(kept.round, finite(kept.scores), None)
    held = evaluate(setup.trainer, setup.clients, kept.models, "validation").metric.numpy()
    return Models(kept.round, finite(kept.scores), finite(in_unit(held, setup.trainer.task.metric).tolist()))


REASONS = {
    "self_weight": "its own model has a weight of {:.2f} in what it gets",
    "effective_clients": "which is made from {:.1f} clients' models in effect",
    "expected_gain": "its expected gain was {:.0%}",
}
"""What the diagnostics of a method say about a client, if it has them."""


def _reason(last: Mapping[str, Any], i: int, home: Rows) -> str:
    """Return why a client may be worse off, from the last round's line and from what all take home; "" if unknown."""
    if len(home) > 1 and bool((home.params == home.params[:1]).all()):
        return "all clients take home the same model, however unlike their samples are"
    known = {name: last[name][i] for name in REASONS if last.get(name)}
    return ", ".join(REASONS[name].format(value) for name, value in known.items() if value is not None)
