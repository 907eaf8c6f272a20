"""After the last round each client goes on alone, from the models that held-out samples chose.

Clients' rules may be related without being the same. Then what is learned together is a good beginning, and each
client's own samples take it further than one round of local training does. How far depends on the data: held-out
samples say after how many rounds to stop, one number for all clients, and 0 of them if none is better than what was
chosen before. Each round alone is one of Separate's, with minibatches of its own. Nothing is sent. What was trained
alone beside the method all along goes on as well, so that models are compared that were trained equally long.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fedamp.config import RunConfig
from fedamp.methods.alone_beside import ALONE
from fedamp.methods.separate import Separate
from fedamp.records.summaries import finite, in_unit, line_mean
from fedamp.records.take_home import CHOSEN, THEN_ALONE, pooled
from fedamp.records.then_alone import ThenAlone
from fedamp.rows import State
from fedamp.runs.client_half import client_half
from fedamp.runs.journal import unplayed_line
from fedamp.runs.round import Round, play_round
from fedamp.runs.scoring import better, scores, with_choice
from fedamp.runs.setup import Setup
from fedamp.runs.standing import Standing


@dataclass(frozen=True)
class WentOn:
    """What came of the rounds alone."""

    at: Standing  # where the run ended, with the best of all models, these rounds' too
    record: ThenAlone
    events: list[str]  # warnings
    seconds: float


def go_on_alone(
    config: RunConfig, setup: Setup, at: Standing, observer: Callable[[Mapping[str, Any]], object]
) -> WentOn | None:
    """Return what comes of going on alone for `config.then_alone` rounds; None where held-out samples chose nothing."""
    said = at.held_out
    if said is None or (began := said.choice) is None:
        return None
    clock, best, metric = time.perf_counter(), dict(at.best), setup.trainer.task.metric
    stacks = {THEN_ALONE: Separate().client_init(at.best[CHOSEN].models)}
    if ALONE in at.best:
        stacks[ALONE] = Separate().client_init(at.clients.rows[ALONE])
    held_out: list[float] = []
    test: list[float] = []
    events: list[str] = []
    for k in range(at.k + 1, at.k + config.then_alone + 1):
        played = {entry: _round(setup, clients, k) for entry, clients in stacks.items()}
        stacks = {entry: each.clients for entry, each in played.items()}
        models = {entry: clients.rows["w"] for entry, clients in stacks.items()}
        line = unplayed_line(k, scores(setup, models, torch.arange(len(setup.clients))))
        now = said.after(line)
        best, said = with_choice(best, said, now, models), now
        if ALONE in stacks:
            best = better(config, setup, best, {ALONE: models[ALONE]}, k)
        held_out.append(pooled(now.last[THEN_ALONE][0], now.last[THEN_ALONE][1], now.sizes, metric)[0])
        test.append((line_mean(line, THEN_ALONE, config.poisoned) or (math.nan, metric))[0])
        events += [text for each in played.values() for text in each.diagnostics["events"]]
        events += setup.shard.told_once("events", setup.trainer.take_events())
        setup.shard.from_leader("a round alone", partial(observer, line))
        setup.shard.stop_together()
    end = said.choice
    taken = end.round - at.k if end is not None and end.entry == THEN_ALONE else 0
    shown = in_unit(np.array(held_out), metric).tolist()
    record = ThenAlone(began.entry, began.round, taken, finite(shown), finite(test))
    return WentOn(replace(at, best=best, held_out=said), record, events, time.perf_counter() - clock)


def _round(setup: Setup, clients: State, k: int) -> Round:
    """Play one of Separate's rounds: everyone is at home, and nobody can send anything that is wrong."""
    everyone = torch.ones(len(setup.clients), dtype=torch.bool)
    method = Separate()
    return play_round(
        method,
        method.server_init(setup.w),
        clients,
        k,
        local_for=lambda who: setup.trainer.local(setup.clients.take(who), k),
        present=everyone,
        names=setup.facts.names,
        half=client_half(setup.store, setup.trainer),
        shard=setup.shard,
    )
