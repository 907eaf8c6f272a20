"""Local training: the only file that knows how clients walk their minibatches.

There are two ways, with the same numbers up to rounding. `LocalLoop` trains one client at a time, each as a
stack of height one: the very path that a silo runs. `LocalStack` trains all clients at once under vmap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedamp import seeds
from fedamp.batches import Batching
from fedamp.clients import Clients
from fedamp.dropout import CoordinateDropout, dropout_key, own_stream
from fedamp.flat import FlatModel
from fedamp.optimizers import Optimizer
from fedamp.rows import Rows
from fedamp.tasks import CLASSIFICATION, Task


@dataclass(frozen=True)
class Training:
    """How clients train locally, the same in every round."""

    model: FlatModel
    optimizer: Optimizer
    batching: Batching
    seed: int = 0
    task: Task = CLASSIFICATION
    engine: str = "loop"  # or "stacked"
    chunk: int = 1 << 30  # clients that are stacked at once, at the most

    def local(self, clients: Clients, k: int) -> LocalLoop | LocalStack:
        """Return the local training of these clients in round k."""
        return (LocalStack if self.engine == "stacked" else LocalLoop)(self, clients, k)


@dataclass(frozen=True)
class _Local:
    """What both ways share: who trains, and how much."""

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
        counts = [[self.training.batching.num_steps(len(positions))] for positions in self.clients.train]
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
        raise NotImplementedError

    def batches(self, i: int) -> list[Tensor]:
        """Return the positions, in the pool, of each step's samples of the client at position i."""
        mine = self.clients.train[i]
        stream = seeds.generator(self.training.seed, "batches", self.clients.numbers[i], self.k)
        drawn = self.training.batching.draw(len(mine), stream)
        return [mine[batch.to(mine.device)] for batch in drawn]

    def dropout_key(self, i: int) -> Tensor:
        """Return the key of this round's dropout masks of the client at position i, `(2,)`."""
        return dropout_key(self.training.seed, self.clients.numbers[i], self.k).to(self.clients.x.device)


def _single(direction: Any) -> Any:
    """Return a direction of one stack as one of a dict with one entry."""

    def directions(rows: Mapping[str, Tensor], grad: Any, **context: Tensor) -> dict[str, Tensor]:
        return {"": direction(rows[""], grad, **context)}

    return directions


@dataclass(frozen=True)
class LocalLoop(_Local):
    """Local training of n clients in one round, one client after the other."""

    def _run(self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor]) -> dict[str, Rows]:
        ended: dict[str, list[Rows]] = {name: [] for name in start}
        losses: dict[str, list[Tensor]] = {}
        for i in range(len(self.clients)):
            one = slice(i, i + 1)
            walk = _Walk(self, i, {name: rows[one] for name, rows in start.items()})
            walk.go(directions, {name: rows[one] for name, rows in context.items()})
            for name in start:
                ended[name].append(Rows(walk.params[name], walk.buffers[name]))
            for name, values in walk.losses.items():
                losses.setdefault(name, []).append(torch.stack(values).mean())
        self.losses.update({name: torch.stack(values) for name, values in losses.items()})
        return {name: Rows.cat(parts) for name, parts in ended.items()}


class _Walk:
    """One client's way through its minibatches."""

    def __init__(self, local: LocalLoop, i: int, start: Mapping[str, Rows]) -> None:
        self.local, self.training, self.i = local, local.training, i
        self.params = {name: rows.params.clone() for name, rows in start.items()}
        self.buffers = {name: rows.buffers for name, rows in start.items()}
        self.moments = {name: self.training.optimizer.init(params) for name, params in self.params.items()}
        self.key = local.dropout_key(i)
        self.losses: dict[str, list[Tensor]] = {}

    def go(self, directions: Any, context: Mapping[str, Tensor]) -> None:
        """Take every step of the round."""
        clients, number = self.local.clients, self.local.clients.numbers[self.i]
        other = seeds.number(self.training.seed, "other randomness", number, self.local.k)
        with own_stream(other, clients.x.device):
            for t, batch in enumerate(self.local.batches(self.i), start=1):
                self.t = t
                self.x, self.y = clients.samples(batch)
                moves = directions(self.params, self.grad, **context)
                for name, move in moves.items():
                    self.training.optimizer.step(self.params[name], move, self.moments[name], self.t)

    def grad(self, point: Tensor, of: str = "") -> Tensor:
        """Return the gradient at a point `(1, d)` on the present minibatch; see `methods.base.Grad`."""
        flat = point[0].detach().requires_grad_(True)
        with CoordinateDropout(self.key, self.t):
            output, buffers = self.training.model(flat, self.buffers[of][0], self.x, training=True)
        loss = self.training.task.loss(output, self.y)
        self.buffers[of] = buffers.detach()[None]
        self.losses.setdefault(of, []).append(loss.detach())
        (gradient,) = torch.autograd.grad(loss, flat)
        return gradient[None]


@dataclass(frozen=True)
class LocalStack(_Local):
    """Local training of n clients in one round, all at once.

    Clients are sorted by size, so that those whose next batch has the same length stand together: each such run
    is one vmap, without padding (which would enter BatchNorm's statistics) and without copying rows.
    """

    def _run(self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor]) -> dict[str, Rows]:
        device = self.clients.x.device
        order = self.sizes[:, 0].argsort(descending=True, stable=True)
        plan = _Plan([self.batches(i) for i in order.tolist()], device)
        keys = torch.stack([self.dropout_key(i) for i in order.tolist()])
        params = {name: rows.params[order] for name, rows in start.items()}
        buffers = {name: rows.buffers[order] for name, rows in start.items()}
        context = {name: value[order] for name, value in context.items()}
        moments = {name: self.training.optimizer.init(value) for name, value in params.items()}
        losses = {name: torch.zeros(len(order), dtype=torch.float64, device=device) for name in start}
        calls = {name: torch.zeros(len(order), dtype=torch.float64, device=device) for name in start}
        for t in range(1, plan.num_steps + 1):
            for run, positions in plan.runs(t, self.training.chunk):
                x, y = self.clients.samples(positions)

                def grad(
                    point: Tensor, of: str = "", run: slice = run, x: Tensor = x, y: Tensor = y, t: int = t
                ) -> Tensor:
                    gradient, loss, after = self._gradient(point, buffers[of][run], x, y, keys[run], t)
                    buffers[of][run] = after
                    losses[of][run] += loss
                    calls[of][run] += 1
                    return gradient

                here = {name: value[run] for name, value in params.items()}
                moves = directions(here, grad, **{name: value[run] for name, value in context.items()})
                for name, move in moves.items():
                    own = tuple(moment[run] for moment in moments[name])
                    self.training.optimizer.step(here[name], move, own, t)
        back = order.argsort()
        means = {name: (losses[name] / calls[name])[back] for name in start if calls[name].any()}
        self.losses.update({name: mean.to(self.training.model.dtype) for name, mean in means.items()})
        return {name: Rows(params[name][back], buffers[name][back]) for name in start}

    def _gradient(
        self, point: Tensor, buffers: Tensor, x: Tensor, y: Tensor, keys: Tensor, t: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return gradients `(n, d)`, losses `(n,)` and buffers `(n, b)` of n clients, each at its own point."""

        def loss(params: Tensor, buffers: Tensor, x: Tensor, y: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            with CoordinateDropout(key, t):
                output, after = self.training.model(params, buffers, x, training=True)
            return self.training.task.loss(output, y), after

        gradient, (value, after) = vmap(grad_and_value(loss, has_aux=True))(point, buffers, x, y, keys)
        return gradient, value, after


class _Plan:
    """Which clients step together: runs of neighbours whose batches have one length."""

    def __init__(self, batches: list[list[Tensor]], device: torch.device) -> None:
        self.num_steps = max(len(one) for one in batches)
        longest = max(len(batch) for one in batches for batch in one)
        self.lengths = [[len(batch) for batch in one] for one in batches]
        # One table for the round: a step then looks up a block of it, whoever takes part.
        self.positions = torch.zeros((len(batches), self.num_steps, longest), dtype=torch.long)
        for i, one in enumerate(batches):
            row = torch.cat(one).cpu()
            mask = torch.zeros((self.num_steps, longest), dtype=torch.bool)
            for t, batch in enumerate(one):
                mask[t, : len(batch)] = True
            self.positions[i][mask] = row
        self.positions = self.positions.to(device)

    def runs(self, t: int, chunk: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of clients for step t (from 1), with the positions of their samples `(n, length)`."""
        lengths = [one[t - 1] if t <= len(one) else 0 for one in self.lengths]
        begin = 0
        while begin < len(lengths):
            end = begin + 1
            while end < len(lengths) and lengths[end] == lengths[begin] and end - begin < chunk:
                end += 1
            if lengths[begin]:
                run = slice(begin, end)
                yield run, self.positions[run, t - 1, : lengths[begin]]
            begin = end
