"""How good a run's models are, on what is held out: for a round's line, for models that are kept, over all rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedamp.config import RunConfig
from fedamp.methods import Method
from fedamp.records.checkpoints import Snapshot
from fedamp.records.summaries import Line, Summary, counted_clients, in_unit, score_table, spread, summarise
from fedamp.records.take_home import CHOSEN, SCORED, HeldOut, pooled, told_apart
from fedamp.rows import Rows
from fedamp.runs.result import LAST, VALIDATED, Kept
from fedamp.runs.setup import Setup
from fedamp.training.evaluate import Scores, evaluate


def with_between(models: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return the models, and `between` if there are both of which it is the midpoint: (own + received) / 2.

    Buffers are mixed as rows always are: halves of counts are rounded where a state dict is made of them.
    """
    if not {"own", "received"} <= models.keys():
        return dict(models)
    own, received = models["own"], models["received"]
    middle = Rows((own.params + received.params) / 2, (own.buffers + received.buffers) / 2)
    return {**models, "between": middle}


def evaluated(setup: Setup, models: Mapping[str, Rows], on: str, who: Tensor | None = None) -> dict[str, Scores]:
    """Return all clients' scores, or those of the clients in `who`, by the names of models.

    Of several processes each has the models of its own clients, scores those, and hears of the others' scores.
    """
    who = torch.arange(len(setup.clients)) if who is None else who
    mine = who[setup.shard.here(who)]
    found = {}
    if len(mine):
        here = setup.clients.take(mine)
        found = {name: evaluate(setup.trainer, here, rows, on) for name, rows in models.items()}
    told = setup.shard.told(f"{on} scores", found)
    return {name: Scores.cat([each[name] for each in told if name in each]) for each in told for name in each}


def scores(setup: Setup, models: Mapping[str, Rows], who: Tensor) -> dict[str, Any]:
    """Return score and loss on what is held out, for each of the models; None for a client that is not in `who`.

    With validation samples the midpoint of own and received models is scored too.
    """
    clients, metric, found = setup.clients, setup.trainer.task.metric, {}
    models = with_between(models) if clients.validation else models
    places = who.tolist()
    for on in ("test", "validation"):
        if getattr(clients, on):
            found[on] = {
                name: {
                    metric: spread(score.metric.tolist(), places, len(clients), broken="inf"),
                    "loss": spread(score.loss.tolist(), places, len(clients)),
                }
                for name, score in evaluated(setup, models, on, who).items()
            }
    return found


def kept(setup: Setup, k: int, models: Rows, validation: float | None = None) -> Kept:
    """Return all clients' models of round k with their own test scores."""
    own = evaluated(setup, {"": setup.shard.rows(models)}, "test")[""].metric.numpy()
    scores = in_unit(own, setup.trainer.task.metric).tolist()
    return Kept(k, models, scores, validation, LAST if validation is None else VALIDATED)


def better(
    config: RunConfig, setup: Setup, best: Mapping[str, Snapshot], models: Mapping[str, Rows], k: int
) -> dict[str, Snapshot]:
    """Return the best validated models of each entry, now that round k is played.

    The rule is that of what clients take home: the score on all held-out samples together, then their loss, then the
    earlier round. By another one, models trained alone would be compared with better chosen ones. Each stack is scored
    itself: in a round's line an absent client has the score of another model. What is received in round k was made by
    the round before; what was there before the first round is nobody's result.
    """
    found, task, sizes = dict(best), setup.trainer.task, held_sizes(config, setup)
    for entry, rows in models.items():
        made = k - 1 if entry == "received" else k
        each = evaluated(setup, {entry: rows}, "validation")[entry]
        score, loss = pooled(each.metric.numpy(), each.loss.numpy(), sizes, task.metric)
        one = Snapshot(made, score if task.higher_is_better else -score, rows, loss)
        if made > 0 and math.isfinite(score) and (entry not in found or _rank(one) > _rank(found[entry])):
            found[entry] = one
    return found


def scored_again(config: RunConfig, setup: Setup, best: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """Return saved best models, scored as `better` does; an earlier version scored otherwise, and knew no loss."""
    found = dict(best)
    for entry, one in best.items():
        if math.isinf(one.loss) and entry not in (AT_HOME, CHOSEN):
            del found[entry]
            k = one.round + 1 if entry == "received" else one.round
            found = better(config, setup, found, {entry: one.models}, k)
    return found


def _rank(one: Snapshot) -> tuple[float, float]:
    return told_apart(one.score), -told_apart(one.loss)


def held_sizes(config: RunConfig, setup: Setup) -> tuple[int, ...]:
    """Return how many samples each client holds out for validation; 0 for one that does not count."""
    counted = counted_clients(len(setup.clients), config.poisoned)
    return tuple(len(held) if counts else 0 for held, counts in zip(setup.clients.validation, counted, strict=True))


def held_out(config: RunConfig, setup: Setup, lines: Sequence[Line]) -> HeldOut | None:
    """Return what the held-out samples say after these lines; None if no samples are held out."""
    if not setup.clients.validation:
        return None
    return HeldOut(held_sizes(config, setup), setup.trainer.task.metric, setup.method.scored).over(lines)


AT_HOME = "at home"
"""What each client received last, among the models that a checkpoint keeps."""


def at_home(models: Mapping[str, Rows], before: Snapshot | None, heard: Tensor) -> dict[str, Rows]:
    """Return the models that clients have: who was not heard in this round has what it received before."""
    if "received" not in models or before is None:
        return dict(models)
    here = heard.nonzero()[:, 0].to(models["received"].params.device)
    return {**models, "received": before.models.put(here, models["received"][here])}


def with_choice(
    best: Mapping[str, Snapshot], before: HeldOut, now: HeldOut, models: Mapping[str, Rows]
) -> dict[str, Snapshot]:
    """Return the best models with those that clients may take home, if the last line made these the choice."""
    one = now.choice
    if one is None or one == before.choice:
        return dict(best)
    return {**best, CHOSEN: Snapshot(one.round, one.score, models[one.entry])}


def take_home_rule(config: RunConfig, method: Method) -> str:
    """Return what clients take home, where samples are held out: as asked for, or the method's own way.

    Where samples are protected, held-out ones choose nothing by themselves: their scores are not covered.
    """
    if config.take_home == "auto":
        return SCORED if config.private else CHOSEN if config.then_alone else method.takes_home
    return config.take_home


def summary(config: RunConfig, setup: Setup, history: Sequence[Mapping[str, Any]]) -> Summary:
    """Return one number for the whole run, and what goes with it."""
    metric = setup.trainer.task.metric
    table = score_table(history, setup.method.scored, metric)
    return summarise(table, metric, counted_clients(len(setup.clients), config.poisoned))
