"""What a run is going to spend: its method played through to the last round, without any training.

How many gradients a method takes of a minibatch, how many passes it makes, on which part of the samples, and how often
it asks for a loss, is the method's own affair, and may change from round to round. So all rounds are played, with
models of a few columns and a local training that only counts.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from fedamp.methods.base import Local, Method
from fedamp.privacy import sampling
from fedamp.privacy.events import Event, Spending
from fedamp.rows import Columns, Message, Rows

WIDTH = 8
"""Columns of the models in a rehearsal."""


class Training(Local, Protocol):
    """What a rehearsal must know of the training that it stands for."""

    @property
    def batch_size(self) -> int:
        """Samples of a minibatch, on average."""


def rehearse(
    method: Method,
    w: Rows,
    rounds: int,
    training: Callable[[Tensor, int], Training],
    present: Callable[[int], Tensor] | None = None,
) -> list[Spending]:
    """Return what each of the m clients will spend in all rounds, at a noise of 1.

    `w` are the first models, of which only counts whether they are all the same. `training` gives the private training
    of the clients at some positions in round k, and `present` who takes part in it, `(m,)`: all, if it is not given.
    """
    spent: list[Spending] = [Counter() for _ in range(len(w))]
    start = _narrow(w)
    server, clients = method.server_init(start), method.client_init(start)
    for k in range(1, rounds + 1):
        here = torch.ones(len(w), dtype=torch.bool) if present is None else present(k)
        who = here.nonzero()[:, 0]
        server, message = method.server_send(server, k)
        local = _Counting(training(who, k), [spent[i] for i in who.tolist()], k)
        received: Message = {name: rows[who] for name, rows in message.items()}
        ended, reply = method.client_update(clients.take(who), received, local)
        clients = clients.put(who, ended)
        server = method.server_receive(server, reply, here)
    return spent


class _Counting:
    """A local training that asks each direction once which gradients it takes, and moves every model a little.

    Models that stayed where they are would be all the same: a method may then have nothing to do.
    """

    def __init__(self, real: Training, spent: list[Spending], k: int) -> None:
        self.real, self.spent, self.protects = real, spent, True
        self.random = torch.Generator().manual_seed(k)

    @property
    def sizes(self) -> Tensor:
        """Training samples of each client, `(n, 1)`."""
        return self.real.sizes.cpu()

    @property
    def steps(self) -> Tensor:
        """Steps of each client, `(n, 1)`."""
        return self.real.steps.cpu()

    @property
    def lr(self) -> float:
        """The learning rate."""
        return self.real.lr

    @property
    def epochs(self) -> int | None:
        """Passes over the samples."""
        return self.real.epochs

    def part(self, half: Tensor) -> Self:
        """Return the same on a part of the samples."""
        return self._with(self.real.part(half))

    def held_out(self, share: float) -> tuple[Self, Self]:
        """Return the same on both sides of a split."""
        rest, held = self.real.held_out(share)
        return self._with(rest), self._with(held)

    def again(self, number: int = 1, *, only: Columns | None = None, **settings: Any) -> Self:
        """Return another pass; which columns it moves makes no difference to what it spends."""
        return self._with(self.real.again(number, **settings))

    def at_home(self) -> Self:
        """Return the same for a model that never leaves: it spends nothing."""
        here = self._with(self.real.at_home())
        here.protects = False
        return here

    def head(self, layers: int = 1) -> Columns:
        """Return columns that are none, all or some of a model if the real ones are."""
        return _few(self.real.head(layers))

    def norm(self) -> Columns:
        """Return columns that are none, all or some of a model if the real ones are."""
        return _few(self.real.norm())

    def noise(self, of: str = "") -> Tensor:
        """Return a little noise where samples are protected: a method may ask whether there is any."""
        return torch.full((len(self.spent), 1), 1e-9 if self.protects else 0.0, dtype=torch.float64)

    def loss(self, rows: Rows) -> Tensor:
        """Count the minibatches that a loss takes, and return one."""
        size = self.real.batch_size
        self._spend([sampling.loss_steps(size, each) for each in self._sizes()], 1)
        return torch.ones((len(rows), 1), dtype=torch.float64)

    def run(self, start: Any, direction: Any, **context: Tensor) -> Any:
        """Count the steps of a pass, and return models that have moved."""
        taken: list[tuple[int, int]] = []

        def grad(point: Tensor, of: str = "", part: tuple[int, int] = (1, 1)) -> Tensor:
            taken.append(part)
            return torch.zeros_like(point)

        direction(start.params if isinstance(start, Rows) else _params(start), grad, **context)
        if taken:
            self._spend(self.steps[:, 0].tolist(), sampling.most_gradients(taken))
        if isinstance(start, Rows):
            return self._moved(start)
        return {name: self._moved(rows) for name, rows in start.items()}

    def _with(self, real: Any) -> Self:
        other = copy.copy(self)
        other.real = real
        return other

    def _sizes(self) -> list[int]:
        return [int(size) for size in self.sizes[:, 0].tolist()]

    def _spend(self, steps: list[int], gradients: int) -> None:
        if not self.protects:
            return
        for spent, size, count in zip(self.spent, self._sizes(), steps, strict=True):
            spent[Event(sampling.rate(self.real.batch_size, size), 1 / math.sqrt(gradients))] += count

    def _moved(self, rows: Rows) -> Rows:
        step = torch.rand(rows.params.shape, generator=self.random, dtype=torch.float64)
        return Rows(rows.params + 0.1 * step.to(rows.params), rows.buffers)


def _narrow(w: Rows) -> Rows:
    """Return first models of a few columns, which are all the same if the real ones are."""
    same = bool((w.params == w.params[:1]).all())
    drawn = torch.rand((1 if same else len(w), WIDTH), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Rows.of(drawn.to(w.params.dtype).repeat(len(w) if same else 1, 1))


def _few(columns: Columns) -> Columns:
    mask = columns.params
    some = torch.tensor([bool(mask.any()), bool(mask.all())]).repeat_interleave(WIDTH // 2)
    return Columns(some, torch.zeros(0, dtype=torch.bool))


def _params(start: Mapping[str, Rows]) -> dict[str, Tensor]:
    return {name: rows.params for name, rows in start.items()}
