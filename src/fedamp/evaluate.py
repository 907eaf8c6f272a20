"""How good models are: rows + held-out samples -> a score and a loss for each client."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import vmap

from fedamp.clients import Clients, Positions
from fedamp.local import Training
from fedamp.precision import use_precision
from fedamp.rows import Rows

BATCH = 4096
"""Samples that one client's model sees at once."""


@dataclass(frozen=True)
class Scores:
    """One number a client, `(n,)` each, on the CPU in float64."""

    metric: Tensor  # accuracy, 0 to 1; or for regression the root mean squared error
    loss: Tensor  # mean loss a sample


def evaluate(training: Training, clients: Clients, rows: Rows, on: str = "test") -> Scores:
    """Score each client's row on that client's `test`, `validation` or `train` samples."""
    held: Positions = getattr(clients, on)
    if not held or not all(len(positions) for positions in held):
        raise ValueError(f"not every client has {on} samples; expected at least one for each")
    with use_precision(training.precision, clients.x.device):
        scores = _stacked(training, clients, rows, held) if training.engine == "stacked" else None
        if scores is None:
            parts = [_one(training, clients, rows[slice(i, i + 1)], held[i]) for i in range(len(held))]
            scores = torch.stack(parts)
    scores = scores.double().cpu()
    return Scores(metric=training.task.finish(scores[:, 0]), loss=scores[:, 1])


def _one(training: Training, clients: Clients, row: Rows, positions: Tensor) -> Tensor:
    """Return mean tally and loss of one client, `(2,)`."""
    total = torch.zeros(2, dtype=torch.float64, device=row.params.device)
    for part in torch.split(positions, BATCH):
        x, y = clients.samples(part)
        with torch.no_grad():
            output, _ = training.model(row.params[0], row.buffers[0], x, training=False)
        total += _counts(training, output, y)
    return total / len(positions)


def _counts(training: Training, output: Tensor, y: Tensor) -> Tensor:
    """Return the task's tally and the loss, both summed over the samples, `(2,)`."""
    task, output = training.task, output.to(training.model.dtype)
    return torch.stack([task.tally(output, y).double(), task.loss(output, y).double() * len(y)])


def _stacked(training: Training, clients: Clients, rows: Rows, held: Positions) -> Tensor | None:
    """Return mean tally and loss of all clients, `(n, 2)`, or None where they hold unequal numbers of samples."""
    size = len(held[0])
    if any(len(positions) != size for positions in held) or size > BATCH:
        return None
    scores = torch.empty((len(rows), 2), dtype=torch.float64, device=rows.params.device)

    def work(part: slice) -> None:
        x, y = clients.samples(torch.stack(held[part]))
        with torch.no_grad():
            output = outputs(training, rows[part], x)
            scores[part] = vmap(partial(_counts, training))(output, y)

    training.in_chunks(len(rows), work)
    return scores / size


def outputs(training: Training, rows: Rows, x: Tensor) -> Tensor:
    """Return the outputs of n clients' models on n batches, `(n, B, k)`."""
    if training.model.side_by_side:
        return training.model.stacked(rows.params, rows.buffers, x, training=False)[0]
    return vmap(lambda params, buffers, x: training.model(params, buffers, x, False)[0])(rows.params, rows.buffers, x)
