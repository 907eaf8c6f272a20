"""Local training of one client at a time, each as a stack of height one: exactly the path that a silo runs.

On a CPU several workers may do so side by side (`side_workers`), each with another client.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedamp import seeds
from fedamp.models.dropout import CoordinateDropout, own_stream, streams
from fedamp.rows import Rows, column_blocks
from fedamp.training.local import PLAIN, PROXIMAL, LocalTraining, part_of
from fedamp.training.optimizers import Pull
from fedamp.training.precision import use_precision
from fedamp.training.private.walk import Account, PrivateWalk
from fedamp.training.side_workers import Desk, Stopped, side_by_side
from fedamp.used_memory import empty_stack

if TYPE_CHECKING:
    from fedamp.training.trainer import Trainer

NEAR = 1 << 17
"""Entries of a row that stay near the processor while several things are computed of them: half a MiB of float32."""


@dataclass(frozen=True)
class _Work:
    """What all clients do in a pass, and where their rows end."""

    start: Mapping[str, Rows]
    directions: Any
    context: Mapping[str, Tensor]
    pull: Pull | None
    params: Mapping[str, Tensor]  # (n, d) by entry: a walk takes its steps where its result will be


@dataclass(frozen=True)
class _Walked:
    """What is left of one client's walk, besides its parameters."""

    buffers: Mapping[str, Tensor]  # (1, b) by entry
    losses: Mapping[str, Tensor]  # (1,)
    account: Account | None


class LocalLoop(LocalTraining):
    """Local training of n clients in one round, one client at a time."""

    stop: Event | None = None  # of a worker: whether its work is still wanted

    def _run(
        self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor], pull: Pull | None
    ) -> dict[str, Rows]:
        params = {name: empty_stack(tuple(rows.params.shape), rows.params) for name, rows in start.items()}
        work = _Work(start, directions, context, pull, params)
        walked = self._side_by_side(work) or self._one_by_one(work)
        if self.config.privacy is not None:
            for i, one in enumerate(walked):
                assert one.account is not None
                self.take_account([i], one.account)
        self.losses.update({name: torch.cat([one.losses[name] for one in walked]) for name in walked[0].losses})
        return {name: Rows(params[name], torch.cat([one.buffers[name] for one in walked])) for name in start}

    def _one_by_one(self, work: _Work) -> list[_Walked]:
        """Let one client after another walk, each with random streams of its own."""
        walked = []
        for i in range(len(self.clients)):
            with own_stream(self._other_randomness(i), self.clients.x.device):
                walked.append(self._walk(work, i))
        return walked

    def _side_by_side(self, work: _Work) -> list[_Walked] | None:
        """Let clients walk side by side, the largest first; None if they can't.

        They can't if a walk draws from a global stream of random numbers: no two can have their own at the same time.
        """
        device, workers = self.clients.x.device, min(self.config.workers, len(self.clients))
        if workers == 1 or self.trainer.one_at_a_time:
            return None
        walked, stop = dict[int, _Walked](), Event()

        def worker(trainer: Trainer) -> Any:
            mine = copy.copy(self)
            mine.trainer, mine.stop = trainer, stop

            def walk(i: int) -> None:
                with use_precision(self.config.precision, device):
                    walked[i] = mine._walk(work, i)

            return walk

        samples = [self.config.batching.samples(self.size(i)) for i in range(len(self.clients))]
        jobs = sorted(range(len(samples)), key=lambda i: -samples[i])
        with own_stream(self.config.seed, device):
            before = streams(device)
            side_by_side(jobs, [worker(trainer) for trainer in self.trainer.twins(workers)], stop)
            if streams(device) != before:
                self.trainer.one_at_a_time = True
                return None
        return [walked[i] for i in range(len(self.clients))]

    def _walk(self, work: _Work, i: int) -> _Walked:
        """Let one client take all of its steps."""
        one, own = slice(i, i + 1), {}
        for name, rows in work.start.items():
            # `data`: autograd counts the changes of this row by itself, not those of the stack that it is part of.
            own[name] = Rows(work.params[name][one].data.copy_(rows.params[one]), rows.buffers[one])
        walk = _Walk(self, i, own) if self.config.privacy is None else PrivateWalk(self, [i], own)
        context = {name: rows[one] for name, rows in work.context.items()}
        walk.go(work.directions, context, work.pull and work.pull[one])
        return _Walked(walk.buffers, walk.mean_losses(), walk.account if isinstance(walk, PrivateWalk) else None)

    def step(self, w: Tensor, move: Tensor, moments: tuple[Tensor, ...], t: int, pull: Pull | None) -> None:
        """Take a step, if it is still wanted."""
        if self.stop is not None and self.stop.is_set():
            raise Stopped
        super().step(w, move, moments, t, pull)

    def _other_randomness(self, i: int) -> int:
        number = self.clients.numbers[i]
        if self.config.privacy is not None:
            return self.streams.other(number)
        return seeds.number(self.config.seed, "other randomness", number, *self.when)


class _Walk:
    """One client's way through its minibatches, on rows of its own."""

    def __init__(self, local: LocalLoop, i: int, own: Mapping[str, Rows]) -> None:
        self.local, self.i = local, i
        # A silo's only client comes back after a long while: it does not keep the memory of a few rows until then.
        self.desk = local.trainer.desk if len(local.clients) > 1 else Desk()
        self.model, self.config = local.trainer.model, local.config
        self.params = {name: rows.params for name, rows in own.items()}
        self.buffers = {name: rows.buffers for name, rows in own.items()}
        count = self.config.optimizer.num_moments
        self.moments = {
            name: tuple(self.desk.like(params, f"moment {j} of {name}").zero_() for j in range(count))
            for name, params in self.params.items()
        }
        self.key = local.dropout_key(i).to(local.clients.x.device)
        self.losses: dict[str, list[Tensor]] = {}

    def go(self, directions: Any, context: Mapping[str, Tensor], pull: Pull | None) -> None:
        """Take every step of the round."""
        clients, self.spare = self.local.clients, directions in (PLAIN, PROXIMAL)
        if directions is PROXIMAL:
            directions = _proximal
        for t, batch in enumerate(self.local.batches(self.i), start=1):
            self.t = t
            self.x, self.y = clients.samples(batch)
            self.weight = clients.weights(self.i, self.y)
            moves = directions(self.params, self.grad, **context)
            for name, move in moves.items():
                self.local.step(self.params[name], move, self.moments[name], self.t, pull)

    def mean_losses(self) -> dict[str, Tensor]:
        """Return the mean loss over all steps, `(1,)`, of the entries whose gradient was taken."""
        return {name: torch.stack(values).mean()[None] for name, values in self.losses.items()}

    def grad(self, point: Tensor, of: str = "", part: tuple[int, int] = (1, 1)) -> Tensor:
        """Return the gradient at a point `(1, d)` on the current minibatch; see `methods.base.Grad`.

        The parameters are leaves of their own, so that nothing has to pass through a graph of how the row was cut.
        """
        point, here = point.detach(), part_of(len(self.y), part)
        named = {name: value.detach().requires_grad_() for name, value in self.model.named(point[0]).items()}
        with CoordinateDropout(self.key, self.t):
            # A copy: a module may write into its input, and a method may ask for a second gradient of this minibatch.
            output, buffers = self.model.at(named, self.buffers[of][0], self.x[here].clone(), training=True)
        weight = None if self.weight is None else self.weight[here]
        loss = self.config.task.loss(output.to(point.dtype), self.y[here], weight)
        self.buffers[of] = buffers.detach()[None]
        self.losses.setdefault(of, []).append(loss.detach())
        gradients = torch.autograd.grad(loss, list(named.values()), materialize_grads=True)
        # A method may keep a gradient, unless its direction is known.
        row = self.desk.like(point, "gradient") if self.spare else torch.empty_like(point)
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=row[0])
        return row


def _proximal(rows: Mapping[str, Tensor], grad: Any, anchor: Tensor, strength: Tensor) -> dict[str, Tensor]:
    """Return what `methods.base.proximal` does, to the bit, in place of the gradient and without another large row."""
    w = rows[""]
    gradient: Tensor = grad(w)
    for block in column_blocks(w, NEAR):
        gradient[:, block].addcmul_(strength, w[:, block] - anchor[:, block])
    return {"": gradient}
