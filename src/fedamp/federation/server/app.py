"""The server's part of a federation: plays its rounds, and continues where it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from fedamp.errors import UserError
from fedamp.federation.plan import Federation, Plan, disagreement
from fedamp.federation.server.attendance import Attendance
from fedamp.federation.server.outbox import Outbox
from fedamp.federation.server.record import Record, TaskFacts
from fedamp.federation.server.state import ServerState
from fedamp.federation.server.strategy import RowStrategy
from fedamp.federation.wire.allowed_metrics import metric_names
from fedamp.rows import Rows
from fedamp.runs.judging import NOTHING_OWN, judged_task, positive_word
from fedamp.runs.material import outputs_of
from fedamp.runs.parts import first_models, method_of, optimizer_of
from fedamp.training.batches import Batching


def serve(grid: Grid, federation: Federation, folder: Path) -> Record:
    """Play the federation's rounds from where its record ends, and return the record, which is in `folder`."""
    record = open_record(federation, folder)
    play(grid, record)
    return record


def play(grid: Grid, record: Record, turn_away: Callable[[str], None] = lambda name: None) -> None:
    """Play the rounds that a record still lacks; `turn_away` closes the door to a silo that is removed, by its name."""
    federation, plan = record.federation, record.federation.plan
    if record.finished():
        record.say("all rounds have been played; raise `rounds` in federation.json to continue")
        return
    state, rounds = record.state, plan.config.rounds
    outbox = Outbox(state, plan.told(), record.begin())
    names = {member.key: member.name for member in federation.members}
    numbers = {member.key: member.number for member in federation.members}
    attendance = Attendance(state, names, lambda who: _first_model(plan, numbers[who])[1], outbox, record, turn_away)
    strategy = RowStrategy(state, attendance, outbox, record, metric_names(record.facts.metric), rounds)
    while not record.finished():  # a round that did not count is played again
        strategy.start(grid, ArrayRecord(), num_rounds=max(1, rounds - state.k), timeout=federation.rules.reply_timeout)
    strategy.say_farewell(grid)


def open_record(federation: Federation, folder: Path) -> Record:
    """Return the federation's record, not yet begun, with a state that no silo has joined."""
    plan = federation.plan
    if difference := disagreement(plan.agreed(), plan.here()):
        raise UserError(f"the plan of the federation does not fit this installation: {difference}")
    method = method_of(plan.config)
    optimizer_of(plan.config, method)  # one that the method can't use is refused now
    outputs, task = outputs_of(plan.schema)
    flat, first = _first_model(plan, 0)
    batching = Batching(plan.config.batch_size, plan.config.epochs, plan.config.steps)
    state = ServerState(method, federation.rules, first, flat.variances, batching.num_steps)
    task = judged_task(plan.config, task, outputs, plan.schema.labels, NOTHING_OWN)
    facts = TaskFacts(
        task.name,
        task.metric,
        plan.schema.input_shape,
        outputs,
        flat.num_params,
        positive_word(task, plan.schema.labels),
    )
    return Record(folder, federation, state, facts)


def _first_model(plan: Plan, number: int) -> tuple[Any, Rows]:
    """Return the model of a plan, and the first row `(1, d)` of the silo with this number."""
    outputs, _ = outputs_of(plan.schema)
    return first_models(plan.config, plan.schema.input_shape, outputs, [number], None, torch.device("cpu"))
