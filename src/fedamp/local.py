"""Local training: the only file that knows how a client walks its minibatches.

Clients train one at a time, each as a stack of height one: the very path that a silo runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedamp import seeds
from fedamp.batches import Batching
from fedamp.clients import Clients
from fedamp.dropout import CoordinateDropout, dropout_key, own_stream
from fedamp.flat import FlatModel
from fedamp.optimizers import Optimizer
from fedamp.rows import Rows

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Training:
    """How clients train locally, the same in every round: what a `LocalLoop` is made from."""

    model: FlatModel
    optimizer: Optimizer
    batching: Batching
    seed: int = 0
    loss: Loss = F.cross_entropy

    def local(self, clients: Clients, k: int) -> "LocalLoop":
        """Return the local training of these clients in round k."""
        return LocalLoop(self, clients, k)


@dataclass(frozen=True)
class LocalLoop:
    """Local training of n clients in one round, one client after the other."""

    training: Training
    clients: Clients
    k: int
    losses: dict[str, Tensor] = field(default_factory=dict)
    """Mean training loss of each client over its steps, `(n,)`, by the entry of `start`; filled by `run`."""

    @property
    def sizes(self) -> Tensor:
        """Training samples of each client, `(n, 1)`."""
        return torch.tensor([[len(positions)] for positions in self.clients.train], device=self.clients.x.device)

    @property
    def steps(self) -> Tensor:
        """Steps K_i that each client takes in a round, `(n, 1)`."""
        batching = self.training.batching
        counts = [[batching.num_steps(len(positions))] for positions in self.clients.train]
        return torch.tensor(counts, device=self.clients.x.device)

    @property
    def lr(self) -> float:
        """The optimiser's learning rate."""
        return self.training.optimizer.lr

    def run(self, start: Any, direction: Any, **context: Tensor) -> Any:
        """Return where the rows end that start at `start` (rows, or a dict of them) and follow `direction`."""
        if isinstance(start, Rows):
            return self._run({"": start}, _single(direction), context)[""]
        return self._run(start, direction, context)

    def _run(self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor]) -> dict[str, Rows]:
        ended: dict[str, list[Rows]] = {name: [] for name in start}
        losses: dict[str, list[Tensor]] = {name: [] for name in start}
        for i in range(len(self.clients)):
            one = slice(i, i + 1)
            walk = _Walk(self, i, {name: rows[one] for name, rows in start.items()})
            walk.go(directions, {name: rows[one] for name, rows in context.items()})
            for name in start:
                ended[name].append(Rows(walk.params[name], walk.buffers[name]))
                losses[name] += [torch.stack(walk.losses[name]).mean()] if name in walk.losses else []
        self.losses.update({name: torch.stack(values) for name, values in losses.items() if values})
        return {name: Rows.cat(parts) for name, parts in ended.items()}


class _Walk:
    """One client's way through its minibatches."""

    def __init__(self, local: LocalLoop, i: int, start: Mapping[str, Rows]) -> None:
        training, clients = local.training, local.clients
        self.training, self.clients, self.mine = training, clients, clients.train[i]
        self.coordinates = clients.numbers[i], local.k
        self.params = {name: rows.params.clone() for name, rows in start.items()}
        self.buffers = {name: rows.buffers for name, rows in start.items()}
        self.moments = {name: training.optimizer.init(params) for name, params in self.params.items()}
        self.key = dropout_key(training.seed, *self.coordinates).to(clients.x.device)
        self.losses: dict[str, list[Tensor]] = {}

    def go(self, directions: Any, context: Mapping[str, Tensor]) -> None:
        """Take every step of the round."""
        seed, optimizer = self.training.seed, self.training.optimizer
        stream = seeds.generator(seed, "batches", *self.coordinates)
        batches = self.training.batching.draw(len(self.mine), stream)
        other = seeds.number(seed, "other randomness", *self.coordinates)
        with own_stream(other, self.clients.x.device):
            for t, batch in enumerate(batches, start=1):
                self.x, self.y = self._samples(batch)
                self.t = t
                moves = directions(self.params, self.grad, **context)
                for name, move in moves.items():
                    optimizer.step(self.params[name], move, self.moments[name], t)

    def _samples(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        chosen = self.mine[batch.to(self.mine.device)]
        return self.clients.x[chosen], self.clients.y[chosen]

    def grad(self, point: Tensor, of: str = "") -> Tensor:
        """Return the gradient at a point `(1, d)` on the present minibatch; see `methods.base.Grad`."""
        flat = point[0].detach().requires_grad_(True)
        with CoordinateDropout(self.key, self.t):
            output, buffers = self.training.model(flat, self.buffers[of][0], self.x, training=True)
        loss = self.training.loss(output, self.y)
        self.buffers[of] = buffers.detach()[None]
        self.losses.setdefault(of, []).append(loss.detach())
        (gradient,) = torch.autograd.grad(loss, flat)
        return gradient[None]


def _single(direction: Any) -> Any:
    """Return a direction of one stack as one of a dict with one entry."""

    def directions(rows: Mapping[str, Tensor], grad: Any, **context: Tensor) -> dict[str, Tensor]:
        return {"": direction(rows[""], grad, **context)}

    return directions
