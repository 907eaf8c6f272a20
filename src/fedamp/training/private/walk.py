"""The way of some clients through their minibatches, with each sample protected: of one client, or of many at once.

    gradient  =  (sum over the minibatch of min(1, C / |g_j|) g_j  +  N(0, (z C)^2)) / (q n)

C is the clip, z the client's noise, q n how many samples a minibatch has on average (Abadi et al., Deep Learning with
Differential Privacy, 2016). Dividing by the number of those that were drawn would tell it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedamp.models.dropout import sample_keys
from fedamp.privacy import sampling
from fedamp.privacy.events import Event, Spending
from fedamp.rows import Rows
from fedamp.training.optimizers import Pull
from fedamp.training.private.minibatches import Minibatches, PrivatePlan

if TYPE_CHECKING:
    from fedamp.training.local import LocalTraining


@dataclass(frozen=True)
class Account:
    """What a walk has cost its clients: a spending for each, and by entry what the noise has put into rows, `(n,)`."""

    spent: list[Spending]
    variances: Mapping[str, Tensor]


class PrivateWalk:
    """The training of the clients at positions `who`, those with the most samples first, from rows of their own."""

    def __init__(self, local: LocalTraining, who: list[int], start: Mapping[str, Rows]) -> None:
        privacy = local.config.privacy
        assert privacy is not None, "nothing is protected here"
        self.local, self.who, self.clip = local, who, privacy.clip
        self.plan = PrivatePlan(local, who)
        numbers, streams = [local.clients.numbers[i] for i in who], local.streams
        self.noise = [streams.noise(number) for number in numbers]
        self.z = [privacy.noise[number] for number in numbers]
        self.keys = torch.stack([streams.dropout_key(number) for number in numbers])
        self.params = {name: rows.params for name, rows in start.items()}
        self.buffers = {name: rows.buffers for name, rows in start.items()}
        self.moments = {name: local.config.optimizer.init(params) for name, params in self.params.items()}
        self.losses = {name: params.new_zeros(len(who), dtype=torch.float64) for name, params in self.params.items()}
        self.calls = {name: [0] * len(who) for name in start}
        self.variances = {name: torch.zeros_like(total) for name, total in self.losses.items()}
        """What the noise has put into each row so far, summed over its columns, `(n,)`; see `Local.noise`."""
        self.spent: list[Spending] = [Counter() for _ in who]

    def go(self, directions: Any, context: Mapping[str, Tensor], pull: Pull | None) -> None:
        """Take every step of the pass."""
        for t in range(1, self.plan.num_steps + 1):
            for run, batch in self.plan.runs(t):
                x, y = self.local.clients.samples(batch.positions)
                here = {name: params[run] for name, params in self.params.items()}
                keys = sample_keys(self.keys[run], batch.index)
                taken: list[tuple[str, tuple[int, int]]] = []
                grad = partial(self.grad, run=run, batch=batch, x=x, y=y, keys=keys, t=t, taken=taken)
                moves = directions(here, grad, **{name: value[run] for name, value in context.items()})
                for name, move in moves.items():
                    own = tuple(moment[run] for moment in self.moments[name])
                    self.local.step(here[name], move, own, t, pull and pull[run])
                    self._count_noise(run, name, here[name], own, t, [part for of, part in taken if of == name])
                self._spend(run, [part for _, part in taken])

    def grad(
        self,
        point: Tensor,
        of: str = "",
        part: tuple[int, int] = (1, 1),
        *,
        run: slice,
        batch: Minibatches,
        x: Tensor,
        y: Tensor,
        keys: Tensor,
        t: int,
        taken: list[tuple[str, tuple[int, int]]],
    ) -> Tensor:
        """Return the noised gradients at points `(n, d)`, each on its client's minibatch; see `methods.base.Grad`."""
        point, present = point.detach(), batch.in_part(part)
        total, losses = self.local.trainer.sample_gradients.clipped_sum(
            self.clip, present, point, self.buffers[of][run], x, y, keys, t
        )
        taken.append((of, part))
        here = range(run.start, run.stop)
        noise = torch.stack([self.noise[i].draw(point.shape[1], point.dtype) for i in here])
        size, noise_of = (
            total.new_tensor(values)[:, None] for values in zip(*(self._scale(i, part) for i in here), strict=True)
        )
        self.losses[of][run] += losses / size[:, 0]
        for i in here:
            self.calls[of][i] += 1
        return (total / size).addcmul_(noise, noise_of)

    def _scale(self, i: int, part: tuple[int, int]) -> tuple[float, float]:
        """Return how many samples a part has on average, and the standard deviation of the noise in its gradient."""
        size = self.plan.expected[i] / part[1]
        return size, self.z[i] * self.clip / size

    def _count_noise(
        self, run: slice, name: str, w: Tensor, moments: tuple[Tensor, ...], t: int, parts: list[tuple[int, int]]
    ) -> None:
        """Add what this step's noise does to an entry's rows: each column's rate, times the noise of its gradients."""
        if not parts:
            return
        only = None if self.local.only is None else self.local.only.params
        noise = [sum(self._scale(i, part)[1] ** 2 for part in parts) for i in range(run.start, run.stop)]
        variance = self.variances[name].new_tensor(noise)
        self.variances[name][run] += self.local.config.optimizer.variance(variance, w, moments, t, only)

    def _spend(self, run: slice, parts: list[tuple[int, int]]) -> None:
        if not parts:
            return
        most = sampling.most_gradients(parts)
        for i in range(run.start, run.stop):
            self.spent[i][Event(self.plan.rates[i], self.z[i] / math.sqrt(most))] += 1

    @property
    def account(self) -> Account:
        """What it has cost so far."""
        return Account(self.spent, self.variances)

    def mean_losses(self) -> dict[str, Tensor]:
        """Return each client's mean loss over its steps, `(n,)`, of the entries whose gradient was taken."""
        return {
            name: (self.losses[name] / torch.tensor(calls).to(self.losses[name])).to(self.local.trainer.model.dtype)
            for name, calls in self.calls.items()
            if any(calls)
        }
