"""Local training of one client after another, each as a stack of height one: exactly the path that a silo runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedamp import seeds
from fedamp.models.dropout import CoordinateDropout, own_stream
from fedamp.rows import Rows
from fedamp.training.local import LocalTraining, part_of
from fedamp.training.optimizers import Pull
from fedamp.training.private.walk import PrivateWalk


class LocalLoop(LocalTraining):
    """Local training of n clients in one round, one client after another."""

    def _run(
        self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor], pull: Pull | None
    ) -> dict[str, Rows]:
        ended: dict[str, list[Rows]] = {name: [] for name in start}
        losses: dict[str, list[Tensor]] = {}
        for i in range(len(self.clients)):
            one = slice(i, i + 1)
            own = {name: rows[one] for name, rows in start.items()}
            walk = _Walk(self, i, own) if self.config.privacy is None else self._private_walk(i, own)
            with own_stream(self._other_randomness(i), self.clients.x.device):
                walk.go(directions, {name: rows[one] for name, rows in context.items()}, pull and pull[one])
            if isinstance(walk, PrivateWalk):
                self.take_account(walk)
            for name in start:
                ended[name].append(Rows(walk.params[name], walk.buffers[name]))
            for name, mean in walk.mean_losses().items():
                losses.setdefault(name, []).append(mean)
        self.losses.update({name: torch.cat(values) for name, values in losses.items()})
        return {name: Rows.cat(parts) for name, parts in ended.items()}

    def _other_randomness(self, i: int) -> int:
        number = self.clients.numbers[i]
        if self.config.privacy is not None:
            return self.streams.other(number)
        return seeds.number(self.config.seed, "other randomness", number, *self.when)

    def _private_walk(self, i: int, start: Mapping[str, Rows]) -> PrivateWalk:
        """Return a private walk of one client, on a copy of its rows: steps write to them."""
        return PrivateWalk(self, [i], {name: Rows(rows.params.clone(), rows.buffers) for name, rows in start.items()})


class _Walk:
    """One client's way through its minibatches."""

    def __init__(self, local: LocalLoop, i: int, start: Mapping[str, Rows]) -> None:
        self.local, self.i = local, i
        self.model, self.config = local.trainer.model, local.config
        self.params = {name: rows.params.clone() for name, rows in start.items()}
        self.buffers = {name: rows.buffers for name, rows in start.items()}
        self.moments = {name: self.config.optimizer.init(params) for name, params in self.params.items()}
        self.key = local.dropout_key(i).to(local.clients.x.device)
        self.losses: dict[str, list[Tensor]] = {}

    def go(self, directions: Any, context: Mapping[str, Tensor], pull: Pull | None) -> None:
        """Take every step of the round."""
        clients = self.local.clients
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
        """Return the gradient at a point `(1, d)` on the current minibatch; see `methods.base.Grad`."""
        flat, here = point[0].detach().requires_grad_(True), part_of(len(self.y), part)
        with CoordinateDropout(self.key, self.t):
            # A copy: a module may write into its input, and a method may ask for a second gradient of this minibatch.
            output, buffers = self.model(flat, self.buffers[of][0], self.x[here].clone(), training=True)
        weight = None if self.weight is None else self.weight[here]
        loss = self.config.task.loss(output.to(flat.dtype), self.y[here], weight)
        self.buffers[of] = buffers.detach()[None]
        self.losses.setdefault(of, []).append(loss.detach())
        (gradient,) = torch.autograd.grad(loss, flat)
        return gradient[None]
