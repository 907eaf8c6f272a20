"""Local training: the only file that knows how clients walk their minibatches.

There are two ways, with the same numbers up to rounding. `LocalLoop` trains one client at a time, each as a
stack of height one: the very path that a silo runs. `LocalStack` trains all clients at once: side by side in one
pass where all layers of the module are known (`stacked`), else under vmap.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedamp import seeds
from fedamp.data.clients import Clients
from fedamp.methods.base import proximal
from fedamp.models.dropout import CoordinateDropout, dropout_key, own_stream
from fedamp.models.flat import FlatModel
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.optimizers import Optimizer, Pull
from fedamp.training.precision import use_precision
from fedamp.training.stacked.chunks import Chunks
from fedamp.training.stacked.gradients import Gradients
from fedamp.training.tasks import CLASSIFICATION, Task


@dataclass(frozen=True)
class Training:
    """How clients train locally, the same in every round."""

    model: FlatModel
    optimizer: Optimizer
    batching: Batching
    seed: int = 0
    task: Task = CLASSIFICATION
    engine: str = "loop"  # or "stacked"
    chunks: Chunks = field(default_factory=Chunks)  # how many clients are stacked at once
    precision: str = "fp32"  # "tf32" or "bf16", see `precision`
    draws_when_scored: bool = False  # the module draws random numbers in eval mode, too
    events: list[str] = field(default_factory=list, compare=False)  # what is to be told of this training

    @cached_property
    def gradients(self) -> Gradients:
        """The gradients of many clients at once."""
        return Gradients(self.model, self.task, events=self.events)

    def after(self, other: Training) -> Training:
        """Return this training with the passes that were compiled and recorded in another run of the same model.

        Many short runs on a GPU otherwise spend most of their time in making ready.
        """
        mine, theirs = ((repr(one.model.module), one.task, one.precision) for one in (self, other))
        if mine != theirs:  # all that can be seen from here; that it is one model is the caller's word
            raise ValueError("the other run has another model, task or precision: its passes are of no use to this one")
        again = replace(self, model=other.model, events=other.events)
        again.__dict__["gradients"] = other.gradients  # where cached_property keeps it
        return again

    def in_chunks(self, num_clients: int, work: Callable[[slice], None]) -> None:
        """Do work for all clients in chunks that fit the memory; where one did not, that is an event."""
        self.events.extend(self.chunks.over(num_clients, work, self.gradients.graphs.clear))

    def take_events(self) -> list[str]:
        """Return what has happened since the last time."""
        told = list(self.events)
        self.events.clear()
        return told

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
        pull = None
        if direction is proximal:
            context, pull = _apart(context, self.lr)
        with use_precision(self.training.precision, self.clients.x.device):
            if isinstance(start, Rows):
                return self._run({"": start}, _single(direction), context, pull)[""]
            return self._run(start, direction, context, pull)

    def _run(
        self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor], pull: Pull | None
    ) -> dict[str, Rows]:
        raise NotImplementedError

    def batches(self, i: int) -> list[Tensor]:
        """Return the positions, in the pool, of each step's samples of the client at position i."""
        mine = self.clients.train[i]
        return [mine[batch.to(mine.device)] for batch in self.training.batching.draw(len(mine), self.stream(i))]

    def stream(self, i: int) -> np.random.Generator:
        """Return the stream that shuffles the samples of the client at position i in this round."""
        return seeds.generator(self.training.seed, "batches", self.clients.numbers[i], self.k)

    def dropout_key(self, i: int) -> Tensor:
        """Return the key of this round's dropout masks of the client at position i, `(2,)` on the CPU."""
        return dropout_key(self.training.seed, self.clients.numbers[i], self.k)


def _single(direction: Any) -> Any:
    """Return a direction of one stack as one of a dict with one entry."""

    def directions(rows: Mapping[str, Tensor], grad: Any, **context: Tensor) -> dict[str, Tensor]:
        return {"": direction(rows[""], grad, **context)}

    return directions


def _apart(context: Mapping[str, Tensor], lr: float) -> tuple[dict[str, Tensor], Pull | None]:
    """Return what `proximal` is told, less the pulls that are too strong for a step along their gradient; and these."""
    anchor, strength = context["anchor"], context["strength"]
    strong = lr * strength > 1
    if not strong.any():
        return dict(context), None
    return {"anchor": anchor, "strength": strength.where(~strong, 0)}, Pull(anchor, strength.where(strong, 0))


@dataclass(frozen=True)
class LocalLoop(_Local):
    """Local training of n clients in one round, one client after the other."""

    def _run(
        self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor], pull: Pull | None
    ) -> dict[str, Rows]:
        ended: dict[str, list[Rows]] = {name: [] for name in start}
        losses: dict[str, list[Tensor]] = {}
        for i in range(len(self.clients)):
            one = slice(i, i + 1)
            walk = _Walk(self, i, {name: rows[one] for name, rows in start.items()})
            walk.go(directions, {name: rows[one] for name, rows in context.items()}, pull and pull[one])
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
        self.key = local.dropout_key(i).to(local.clients.x.device)
        self.losses: dict[str, list[Tensor]] = {}

    def go(self, directions: Any, context: Mapping[str, Tensor], pull: Pull | None) -> None:
        """Take every step of the round."""
        clients, number = self.local.clients, self.local.clients.numbers[self.i]
        other = seeds.number(self.training.seed, "other randomness", number, self.local.k)
        with own_stream(other, clients.x.device):
            for t, batch in enumerate(self.local.batches(self.i), start=1):
                self.t = t
                self.x, self.y = clients.samples(batch)
                moves = directions(self.params, self.grad, **context)
                for name, move in moves.items():
                    self.training.optimizer.step(self.params[name], move, self.moments[name], self.t, pull)

    def grad(self, point: Tensor, of: str = "") -> Tensor:
        """Return the gradient at a point `(1, d)` on the present minibatch; see `methods.base.Grad`."""
        flat = point[0].detach().requires_grad_(True)
        with CoordinateDropout(self.key, self.t):
            # A copy: a module may write into its input, and a method may ask for a second gradient of this minibatch.
            output, buffers = self.training.model(flat, self.buffers[of][0], self.x.clone(), training=True)
        loss = self.training.task.loss(output.to(flat.dtype), self.y)
        self.buffers[of] = buffers.detach()[None]
        self.losses.setdefault(of, []).append(loss.detach())
        (gradient,) = torch.autograd.grad(loss, flat)
        return gradient[None]


@dataclass(frozen=True)
class LocalStack(_Local):
    """Local training of n clients in one round, all at once, in chunks that fit the memory.

    Clients are sorted by size, so that those whose next batch has the same length stand together: each such run
    is one pass, without padding (which would enter BatchNorm's statistics) and without copying rows.
    """

    def _run(
        self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor], pull: Pull | None
    ) -> dict[str, Rows]:
        order = torch.tensor(sorted(range(len(self.clients)), key=lambda i: -len(self.clients.train[i])))
        ended = {name: _empty_like(rows) for name, rows in start.items()}
        losses: dict[str, Tensor] = {}

        def work(part: slice) -> None:
            who = order[part]
            here = who.to(self.clients.x.device)
            # Copies, which the steps write to, of rows that may be one row seen many times.
            own = {name: Rows(rows.params[here], rows.buffers[here]) for name, rows in start.items()}
            chunk = _Chunk(self, who.tolist(), own)
            chunk.go(directions, {name: value[here] for name, value in context.items()}, pull and pull[here])
            for name in start:
                ended[name].params[here], ended[name].buffers[here] = chunk.params[name], chunk.buffers[name]
            for name, mean in chunk.mean_losses().items():
                losses.setdefault(name, mean.new_empty(len(order)))[here] = mean

        self.training.in_chunks(len(order), work)
        self.losses.update(losses)
        return ended


def _empty_like(rows: Rows) -> Rows:
    # Rows may be one row that is seen n times: what is written to must have its own memory.
    return Rows(rows.params.new_empty(rows.params.shape), rows.buffers.new_empty(rows.buffers.shape))


class _Chunk:
    """The way of some clients through their minibatches, side by side."""

    def __init__(self, local: LocalStack, who: list[int], start: Mapping[str, Rows]) -> None:
        self.local, self.training = local, local.training
        self.plan = _Plan(local, who)
        self.keys = self._keys(who).to(local.clients.x.device)
        self.params = {name: rows.params for name, rows in start.items()}
        self.buffers = {name: rows.buffers for name, rows in start.items()}
        self.moments = {name: self.training.optimizer.init(params) for name, params in self.params.items()}
        self.losses = {name: params.new_zeros(len(who), dtype=torch.float64) for name, params in self.params.items()}
        self.calls = {name: [0] * len(who) for name in start}

    def _keys(self, who: list[int]) -> Tensor:
        if self.training.model.side_by_side:  # it has no dropout, and keys take their time
            return torch.zeros((len(who), 2), dtype=torch.int32)
        return torch.stack([self.local.dropout_key(i) for i in who])

    def go(self, directions: Any, context: Mapping[str, Tensor], pull: Pull | None) -> None:
        """Take every step of the round."""
        for t in range(1, self.plan.num_steps + 1):
            for run, positions in self.plan.runs(t):
                x, y = self.local.clients.samples(positions)
                here = {name: params[run] for name, params in self.params.items()}
                grad = partial(self.grad, run=run, x=x, y=y, t=t, call=itertools.count())
                moves = directions(here, grad, **{name: value[run] for name, value in context.items()})
                for name, move in moves.items():
                    own = tuple(moment[run] for moment in self.moments[name])
                    self.training.optimizer.step(here[name], move, own, t, pull and pull[run])

    def grad(
        self, point: Tensor, of: str = "", *, run: slice, x: Tensor, y: Tensor, t: int, call: Iterator[int]
    ) -> Tensor:
        """Return the gradients at points `(n, d)`, each on its client's minibatch; see `methods.base.Grad`."""
        where = self.buffers[of][run], x, y, self.keys[run], t
        gradient, loss, after = self.training.gradients(point, *where, next(call))
        self.buffers[of][run] = after
        self.losses[of][run] += loss
        for i in range(run.start, run.stop):
            self.calls[of][i] += 1
        # A recorded pass writes its gradient to the same place in each step; a method may keep one.
        return gradient.clone() if gradient.is_cuda else gradient

    def mean_losses(self) -> dict[str, Tensor]:
        """Return each client's mean loss over its steps, `(n,)`, of the entries whose gradient was taken."""
        means = {}
        for name, calls in self.calls.items():
            if any(calls):
                total = self.losses[name]
                means[name] = (total / torch.tensor(calls).to(total)).to(self.training.model.dtype)
        return means


class _Plan:
    """Which clients step together: runs of neighbours whose batches have one length."""

    def __init__(self, local: _Local, who: list[int]) -> None:
        batching, clients = local.training.batching, local.clients
        tables = [batching.table(len(clients.train[i]), local.stream(i)) for i in who]
        self.lengths = [lengths for _, lengths in tables]
        self.num_steps = max(len(table) for table, _ in tables)
        # One table for the round, moved to the device at once: a step then looks up a block of it.
        drawn = np.zeros((len(who), self.num_steps, max(table.shape[1] for table, _ in tables)), dtype=np.int64)
        for i, (table, _) in enumerate(tables):
            drawn[i, : table.shape[0], : table.shape[1]] = table
        held = pad_sequence([clients.train[i] for i in who], batch_first=True)
        self.positions = held.gather(1, torch.from_numpy(drawn).flatten(1).to(held.device)).view(drawn.shape)

    def runs(self, t: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of clients for step t (from 1), with the positions of their samples `(n, length)`."""
        lengths = [one[t - 1] if t <= len(one) else 0 for one in self.lengths]
        begin = 0
        while begin < len(lengths):
            end = begin + 1
            while end < len(lengths) and lengths[end] == lengths[begin]:
                end += 1
            if lengths[begin]:
                run = slice(begin, end)
                yield run, self.positions[run, t - 1, : lengths[begin]]
            begin = end
