"""How good models are: rows + held-out samples -> a score and a loss for each client."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import vmap

from fedamp import seeds
from fedamp.config.metrics import info
from fedamp.data.clients import Clients, Positions
from fedamp.models.dropout import CoordinateDropout, dropout_key, own_stream, seed_streams
from fedamp.rows import Rows
from fedamp.training.metrics import Function
from fedamp.training.precision import use_precision
from fedamp.training.tasks_and_metrics import Task

if TYPE_CHECKING:
    from fedamp.training.trainer import Trainer

BATCH = 4096
"""Samples that one client's model sees at once."""

Answers = list[tuple[Tensor, Tensor]]
"""The outputs of a client's model and the targets, as they come, part by part."""

NO_ROUND = 0
"""Scoring's place among the rounds, which count from 1: a model that draws random numbers when it is scored draws the
same ones in every round, so that rounds and models are compared under the same draws."""


@dataclass(frozen=True)
class Scores:
    """One number per client, `(n,)` each, on the CPU in float64."""

    metric: Tensor
    """Accuracy, 0 to 1, or another metric. nan: the samples do not define it; infinite: nor do the models."""
    loss: Tensor
    """The mean loss of a sample."""

    @classmethod
    def cat(cls, parts: Sequence[Scores]) -> Scores:
        """Return the scores of all clients, given those of some and of others."""
        return cls(torch.cat([part.metric for part in parts]), torch.cat([part.loss for part in parts]))


def evaluate(trainer: Trainer, clients: Clients, rows: Rows, on: str = "test", weighted: bool = False) -> Scores:
    """Score each client's row on that client's `test`, `validation` or `train` samples.

    `weighted` gives the loss of `train` samples as clients train by it: with their class weights, if they have any.
    """
    held: Positions = getattr(clients, on)
    if not held or not all(len(positions) for positions in held):
        raise ValueError(f"not every client has {on} samples; expected at least one for each")
    by_class = clients.class_weights if weighted else None
    task = trainer.task
    answers: list[Answers] | None = [[] for _ in range(len(rows))] if task.judge is not None else None
    with use_precision(trainer.config.precision, clients.x.device), own_stream(trainer.config.seed, clients.x.device):
        scores = (
            _stacked(trainer, clients, rows, held, answers, by_class) if trainer.config.engine == "stacked" else None
        )
        if scores is None:
            parts = [
                _one(
                    trainer,
                    clients,
                    rows[slice(i, i + 1)],
                    number,
                    held[i],
                    None if answers is None else answers[i],
                    None if by_class is None else by_class[i],
                )
                for i, number in enumerate(clients.numbers)
            ]
            scores = torch.stack(parts)
    scores = scores.double().cpu()
    if answers is not None:
        metric = torch.tensor([judged(task, *_joined(parts)) for parts in answers], dtype=torch.float64)
    else:
        metric = task.finish(scores[:, 0]).nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)
    return Scores(metric=metric, loss=scores[:, 1])


def _joined(parts: Answers) -> tuple[Tensor, Tensor]:
    """Return all outputs and all targets of a client."""
    return torch.cat([output for output, _ in parts]), torch.cat([y for _, y in parts])


def judged(task: Task, output: Tensor, y: Tensor) -> float:
    """Return a client's score by the task's metric; a model that is not finite has the worst that there is."""
    assert task.judge is not None, "this metric is a mean over samples"
    output, y = task.in_unit(output, y)
    return worst_if_broken(task.metric, task.judge, output, y)


def worst_if_broken(metric: str, judge: Function, output: Tensor, y: Tensor) -> float:
    """Return judge(output, y); if outputs are not finite, the worst score there is, unless none is defined anyway."""
    if bool(output.isfinite().all()):
        return judge(output, y)
    if math.isnan(judge(torch.zeros_like(output), y)):
        return math.nan
    return (0.0 if info(metric).shares else -math.inf) if info(metric).higher_is_better else math.inf


def answers_of(trainer: Trainer, clients: Clients, rows: Rows, on: str = "test") -> list[tuple[Tensor, Tensor]]:
    """Return each client's outputs and targets on its held-out samples, as metrics see them: on the CPU, in float64."""
    held: Positions = getattr(clients, on)
    with use_precision(trainer.config.precision, clients.x.device), own_stream(trainer.config.seed, clients.x.device):
        parts = [
            list(_passes(trainer, clients, rows[slice(i, i + 1)], number, held[i]))
            for i, number in enumerate(clients.numbers)
        ]
    return [trainer.task.in_unit(output.to(trainer.model.dtype), y) for output, y in map(_joined, parts)]


def _one(
    trainer: Trainer,
    clients: Clients,
    row: Rows,
    number: int,
    positions: Tensor,
    answers: Answers | None = None,
    by_class: Tensor | None = None,
) -> Tensor:
    """Return mean tally and loss of the client with this number, `(2,)`; its outputs go to `answers`."""
    total = torch.zeros(2, dtype=torch.float64, device=clients.x.device)
    for output, y in _passes(trainer, clients, row, number, positions):
        total += _counts(trainer, output, y, None if by_class is None else by_class[y])
        if answers is not None:
            answers.append((output.to(trainer.model.dtype), y))
    return total / len(positions)


def _passes(
    trainer: Trainer, clients: Clients, row: Rows, number: int, positions: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the outputs of the client with this number, and the targets, in parts that fit the memory."""
    device = clients.x.device
    row = row.to(device)
    seed_streams(seeds.number(trainer.config.seed, "other randomness", number, NO_ROUND), device)
    for t, part in enumerate(torch.split(positions, BATCH), start=1):
        x, y = clients.samples(part)
        with torch.no_grad(), _masks(trainer, _keys(trainer, [number]).to(device)[0], t):
            output, _ = trainer.model(row.params[0], row.buffers[0], x, training=False)
        yield output, y


def _keys(trainer: Trainer, numbers: Sequence[int]) -> Tensor:
    """Return the keys of the masks under which clients are scored, `(n, 2)`."""
    if not trainer.config.draws_when_scored:  # they take time, and are not needed
        return torch.zeros((len(numbers), 2), dtype=torch.int32)
    return torch.stack([dropout_key(trainer.config.seed, number, NO_ROUND) for number in numbers])


def _masks(trainer: Trainer, key: Tensor, t: int) -> AbstractContextManager[object]:
    # Only if they are needed: torch leaves its fast path through a transformer when functions are watched.
    return CoordinateDropout(key, t) if trainer.config.draws_when_scored else nullcontext()


def _counts(trainer: Trainer, output: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the task's tally and the loss, both summed over the samples, `(2,)`.

    Weights are 1 on average over all of a client's training samples: a weighted sum over as many is a mean.
    """
    task, output = trainer.task, output.to(trainer.model.dtype)
    loss = task.loss(output, y).double() * len(y) if weight is None else (task.losses(output, y) * weight).sum()
    return torch.stack([task.tally(output, y).double(), loss])


def _stacked(
    trainer: Trainer,
    clients: Clients,
    rows: Rows,
    held: Positions,
    answers: list[Answers] | None,
    by_class: Tensor | None,
) -> Tensor | None:
    """Return mean tally and loss of all clients, `(n, 2)`, those with as many samples at once; None: one by one.

    Samples are not padded: a module may look at the whole batch also when it is scored.
    """
    sizes = [len(positions) for positions in held]
    if max(sizes) > BATCH or (len(set(sizes)) > 1 and not trainer.model.side_by_side):  # vmap may be slow there
        return None
    scores = torch.empty((len(rows), 2), dtype=torch.float64, device=clients.x.device)
    for size in dict.fromkeys(sizes):
        alike = [i for i, each in enumerate(sizes) if each == size]

        def work(part: slice, size: int = size, alike: Sequence[int] = alike) -> None:
            here = alike[part]
            # A slice of all is a view, where positions would copy the models.
            mine, models = (
                part if len(alike) == len(rows) else torch.tensor(here, device=each.device)
                for each in (scores, rows.params)
            )
            x, y = clients.samples(torch.stack([held[i] for i in here]))
            with torch.no_grad():
                output = outputs(trainer, rows[models].to(x.device), x, [clients.numbers[i] for i in here])
                weight = () if by_class is None else (by_class[mine].gather(1, y),)
                scores[mine] = vmap(partial(_counts, trainer))(output, y, *weight) / size
            if answers is not None:
                for i, one, target in zip(here, output.to(trainer.model.dtype), y, strict=True):
                    answers[i] = [(one, target)]

        trainer.in_chunks(len(alike), work)
    return scores


def outputs(trainer: Trainer, rows: Rows, x: Tensor, numbers: Sequence[int]) -> Tensor:
    """Return the outputs of n clients' models on n batches, `(n, B, k)`; `numbers` are the clients'."""
    if trainer.model.side_by_side:
        return trainer.model.stacked(rows.params, rows.buffers, x, training=False)[0]

    def one(params: Tensor, buffers: Tensor, x: Tensor, key: Tensor) -> Tensor:
        with _masks(trainer, key, 1):
            return trainer.model(params, buffers, x, training=False)[0]

    return vmap(one)(rows.params, rows.buffers, x, _keys(trainer, numbers).to(x.device))
