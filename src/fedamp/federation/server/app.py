"""The server's Flower app: reads the federation's folder, plays the rounds, and goes on where it was stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedamp.errors import UserError
from fedamp.federation.plan import Federation, disagreement, read_federation
from fedamp.federation.server.half_sent import bound_the_wait
from fedamp.federation.server.record import Record
from fedamp.federation.server.state import Hub
from fedamp.federation.server.strategy import RowStrategy
from fedamp.federation.wire.metrics import metric_names
from fedamp.rows import Rows
from fedamp.runs.material import outputs_of
from fedamp.runs.parts import first_models as build_first_models
from fedamp.runs.parts import method_of, optimizer_of
from fedamp.training.batches import Batching

FOLDER = "FEDAMP_FEDERATION"  # the environment variable with the federation's folder
RECORD = "record"


def serve(grid: Grid, federation: Federation, folder: Path) -> Record:
    """Play the federation's rounds from wherever its record stands, and return the record."""
    plan = federation.plan
    if words := disagreement(plan.agreed(), plan.here()):
        raise UserError(f"the plan of the federation does not fit this installation: {words}")
    numbers = {member.key: member.number for member in federation.members}
    method = method_of(plan.config)
    optimizer_of(plan.config, method)  # one that the method can't take is told now
    outputs, task = outputs_of(plan.schema)

    def first_models(of: list[int]) -> tuple[Any, Rows]:
        shape, device = plan.schema.input_shape, torch.device("cpu")
        return build_first_models(plan.config, shape, outputs, of, None, device)

    flat, first = first_models([0])
    batching = Batching(plan.config.batch_size, plan.config.epochs, plan.config.steps)
    hub = Hub(method, federation.rules, first, flat.variances, batching.num_steps)
    facts = {
        "names": [member.name for member in federation.members],
        "task": task.name,
        "poisoned": [],
        "groups": None,
        "input_shape": list(plan.schema.input_shape),
        "num_outputs": outputs,
        "parameters": flat.num_params,
        "engine": "federation",
        "shift": None,
        "scale": None,
    }
    record = Record(folder, federation, hub, task.metric, facts)
    if record.finished():
        record.say("all rounds are played; raise `rounds` in federation.json to go on")
        return record
    record.begin()
    rounds = plan.config.rounds
    strategy = RowStrategy(
        hub,
        names={member.key: member.name for member in federation.members},
        first_model=lambda who: first_models([numbers[who]])[1],
        agreement=plan.here(),
        metrics=metric_names(task.metric),
        rounds=rounds,
        after=record.after,
        last=record.last,
        say=record.say,
        admitted=record.admitted,
        status=record.status,
        life=record.life,
        starts=record.starts,
    )
    while not record.finished():  # a round that did not count is played again
        strategy.start(grid, ArrayRecord(), num_rounds=max(1, rounds - hub.k), timeout=federation.rules.reply_timeout)
    return record


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Serve the federation whose folder `fedamp federation up` named."""
    folder = Path(os.environ[FOLDER])
    federation = read_federation(folder)
    bound_the_wait(federation.rules.reply_timeout)
    serve(grid, federation, folder / RECORD)
