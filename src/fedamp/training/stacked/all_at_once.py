"""Local training of all clients at once: side by side if all layers of the module are known, else under vmap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedamp.rows import Rows
from fedamp.training.local import PLAIN, PROXIMAL, LocalTraining, part_of
from fedamp.training.optimizers import Pull
from fedamp.training.private.walk import PrivateWalk
from fedamp.training.stacked import graphs
from fedamp.training.stacked.batch_plan import StepPlan
from fedamp.used_memory import empty_stack


class LocalStack(LocalTraining):
    """Local training of n clients in one round, all at once, in chunks that fit the memory.

    Clients are sorted by size, so that those whose next batch has the same length are together: each such run
    is one pass, without padding (which would enter BatchNorm's statistics) and without copying rows.
    """

    def _run(
        self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor], pull: Pull | None
    ) -> dict[str, Rows]:
        order = torch.tensor(sorted(range(len(self.clients)), key=lambda i: -self.size(i)))
        ended = {name: _empty_like(rows) for name, rows in start.items()}
        losses: dict[str, Tensor] = {}

        def work(part: slice) -> None:
            who = order[part]
            here = who.to(self.clients.x.device)
            # Copies, which the steps write to, of rows that may be one row seen many times.
            copy = self._copied
            own = {name: Rows(copy(name, rows.params, here), rows.buffers[here]) for name, rows in start.items()}
            chunk = (_Chunk if self.config.privacy is None else PrivateWalk)(self, who.tolist(), own)
            chunk.go(directions, {name: value[here] for name, value in context.items()}, pull and pull[here])
            if isinstance(chunk, PrivateWalk):
                self.take_account(chunk.who, chunk.account)
            for name in start:
                ended[name].params[here], ended[name].buffers[here] = chunk.params[name], chunk.buffers[name]
            for name, mean in chunk.mean_losses().items():
                losses.setdefault(name, mean.new_empty(len(order)))[here] = mean

        self.trainer.in_chunks(len(order), work)
        self.losses.update(losses)
        return ended

    def _copied(self, name: str, params: Tensor, which: Tensor) -> Tensor:
        if self.config.privacy is not None or not self.trainer.model.side_by_side:  # nothing is recorded then
            return params[which]
        return self.trainer.gradients.graphs.settled(name, params, which)


def _empty_like(rows: Rows) -> Rows:
    # Rows may be one row that is seen n times: what is written to must have its own memory.
    return Rows(empty_stack(tuple(rows.params.shape), rows.params), rows.buffers.new_empty(rows.buffers.shape))


class _Chunk:
    """The way of some clients through their minibatches, side by side."""

    def __init__(self, local: LocalStack, who: list[int], start: Mapping[str, Rows]) -> None:
        self.local, self.trainer = local, local.trainer
        self.plan = StepPlan(local, who)
        self.places = torch.tensor(who).to(local.clients.x.device)[:, None]
        self.keys = self._keys(who).to(local.clients.x.device)
        self.params = {name: rows.params for name, rows in start.items()}
        self.buffers = {name: rows.buffers for name, rows in start.items()}
        self.moments = {name: local.config.optimizer.init(params) for name, params in self.params.items()}
        self.losses = {name: params.new_zeros(len(who), dtype=torch.float64) for name, params in self.params.items()}
        self.calls = {name: [0] * len(who) for name in start}

    def _keys(self, who: list[int]) -> Tensor:
        if self.trainer.model.side_by_side:  # it has no dropout, and keys take time
            return torch.zeros((len(who), 2), dtype=torch.int32)
        return torch.stack([self.local.dropout_key(i) for i in who])

    def go(self, directions: Any, context: Mapping[str, Tensor], pull: Pull | None) -> None:
        """Take every step of the round."""
        in_one = pull is None and directions in (PLAIN, PROXIMAL) and self.local.steps_in_one(self.params[""])
        for t in range(1, self.plan.num_steps + 1):
            for run, positions in self.plan.runs(t):
                x, y = self.local.clients.samples(positions)
                here = {name: params[run] for name, params in self.params.items()}
                weight = self.local.clients.weights(self.places[run], y)
                grad = partial(self.grad, run=run, x=x, y=y, weight=weight, t=t, call=itertools.count())
                mine = {name: value[run] for name, value in context.items()}
                if in_one:
                    gradient = grad(here[""], kept=False)
                    self.local.step_along(here[""], gradient, self._moments("", run), t, **mine)
                    continue
                for name, move in directions(here, grad, **mine).items():
                    self.local.step(here[name], move, self._moments(name, run), t, pull and pull[run])

    def _moments(self, name: str, run: slice) -> tuple[Tensor, ...]:
        return tuple(moment[run] for moment in self.moments[name])

    def grad(
        self,
        point: Tensor,
        of: str = "",
        part: tuple[int, int] = (1, 1),
        *,
        run: slice,
        x: Tensor,
        y: Tensor,
        weight: Tensor | None,
        t: int,
        call: Iterator[int],
        kept: bool = True,
    ) -> Tensor:
        """Return the gradients at points `(n, d)`, each on its client's minibatch; see `methods.base.Grad`.

        One that is not to be kept is valid until the next step.
        """
        some = part_of(y.shape[1], part)
        where = self.buffers[of][run], x[:, some], y[:, some], self.keys[run], t
        gradient, loss, after = self.trainer.gradients(
            point, *where, next(call), None if weight is None else weight[:, some]
        )
        self.buffers[of][run] = after
        self.losses[of][run] += loss
        for i in range(run.start, run.stop):
            self.calls[of][i] += 1
        # A recorded pass writes its gradient to the same place in each step; a method may keep one.
        return gradient.clone() if kept and graphs.recordable(gradient) else gradient

    def mean_losses(self) -> dict[str, Tensor]:
        """Return each client's mean loss over its steps, `(n,)`, of the entries whose gradient was taken."""
        means = {}
        for name, calls in self.calls.items():
            if any(calls):
                total = self.losses[name]
                means[name] = (total / torch.tensor(calls).to(total)).to(self.trainer.model.dtype)
        return means
