"""Local training in one round: what both ways of walking the minibatches share.

There are two, with the same numbers up to rounding. `one_at_a_time.LocalLoop` trains one client at a time, each as a
stack of height one: exactly the path that a silo runs. `stacked.all_at_once.LocalStack` trains all clients at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedamp import seeds
from fedamp.data.clients import Clients
from fedamp.methods.base import proximal
from fedamp.models.dropout import dropout_key
from fedamp.rows import Rows
from fedamp.training.evaluate import evaluate
from fedamp.training.optimizers import Pull
from fedamp.training.precision import use_precision

if TYPE_CHECKING:
    from fedamp.training.trainer import Trainer


SPLIT = 4
"""Samples that a client needs to have two halves; with fewer each half is all of them. A half of one sample could not
train a BatchNorm, and says next to nothing."""


class LocalTraining(ABC):
    """The local training of n clients in round k; what a method sees of it is `methods.base.Local`."""

    def __init__(self, trainer: Trainer, clients: Clients, k: int) -> None:
        self.trainer, self.clients, self.k = trainer, clients, k
        self.config = trainer.config
        self.losses: dict[str, Tensor] = {}
        """Mean training loss of each client over its steps, `(n,)`, by the entry of `start`; filled by `run`."""

    @property
    def sizes(self) -> Tensor:
        """Training samples of each client, `(n, 1)`."""
        return torch.tensor([[len(positions)] for positions in self.clients.train], device=self.clients.x.device)

    @property
    def steps(self) -> Tensor:
        """Steps K_i that each client takes in a round, `(n, 1)`."""
        counts = [[self.config.batching.num_steps(len(positions))] for positions in self.clients.train]
        return torch.tensor(counts, device=self.clients.x.device)

    @property
    def lr(self) -> float:
        """The optimiser's learning rate."""
        return self.config.optimizer.lr

    def part(self, half: Tensor) -> LocalTraining:
        """Return the same training on a part of each client's samples, by `half` `(n, 1)`: 1 or 2; 0 is all of them.

        Which samples are in which half depends on seed and client alone, so that two rounds can share one split. Rows
        of silos' files are halved by what they hold: if some come or go between the two rounds, at most half as many of
        the others change halves.
        """
        wanted = [int(number) for number in half[:, 0].tolist()]
        if not any(wanted):
            return self
        train = tuple(self._half(i, which) for i, which in enumerate(wanted))
        part = type(self)(self.trainer, replace(self.clients, train=train), self.k)
        part.losses = self.losses  # one record of the round
        return part

    def _half(self, i: int, which: int) -> Tensor:
        mine = self.clients.train[i]
        if which == 0 or len(mine) < SPLIT:
            return mine
        if self.clients.digests is None:
            order = seeds.generator(self.config.seed, "halves", self.clients.numbers[i]).permutation(len(mine))
        else:
            order = np.argsort(self.clients.lots(mine, self.config.seed, "halves"), kind="stable")
        middle = len(mine) // 2
        kept = order[:middle] if which == 1 else order[middle:]
        return mine[torch.from_numpy(kept).to(mine.device)]

    def loss(self, rows: Rows) -> Tensor:
        """Return the mean loss of each client's row on all of its training samples, `(n, 1)`: no training.

        It is the loss that they train by, class weights included: what a method compares with its own steps.
        """
        scores = evaluate(self.trainer, self.clients, rows, "train", weighted=True)
        return scores.loss[:, None].to(self.clients.x.device)

    def run(self, start: Any, direction: Any, **context: Tensor) -> Any:
        """Return where the rows that start at `start` (rows, or a dict of them) and follow `direction` end."""
        pull = None
        if direction is proximal:
            context, pull = _split_pull(context, self.lr)
        with use_precision(self.config.precision, self.clients.x.device):
            if isinstance(start, Rows):
                return self._run({"": start}, _single(direction), context, pull)[""]
            return self._run(start, direction, context, pull)

    @abstractmethod
    def _run(
        self, start: Mapping[str, Rows], directions: Any, context: Mapping[str, Tensor], pull: Pull | None
    ) -> dict[str, Rows]:
        """Return where the rows of each entry end, and fill `losses`."""

    def batches(self, i: int) -> list[Tensor]:
        """Return the positions, in the pool, of each step's samples of the client at position i."""
        mine = self.clients.train[i]
        return [mine[batch.to(mine.device)] for batch in self.config.batching.draw(len(mine), self.stream(i))]

    def stream(self, i: int) -> np.random.Generator:
        """Return the stream that shuffles the samples of the client at position i in this round."""
        return seeds.generator(self.config.seed, "batches", self.clients.numbers[i], self.k)

    def dropout_key(self, i: int) -> Tensor:
        """Return the key of this round's dropout masks of the client at position i, `(2,)` on the CPU."""
        return dropout_key(self.config.seed, self.clients.numbers[i], self.k)


def _single(direction: Any) -> Any:
    """Return a direction of one stack as one of a dict with one entry."""

    def directions(rows: Mapping[str, Tensor], grad: Any, **context: Tensor) -> dict[str, Tensor]:
        return {"": direction(rows[""], grad, **context)}

    return directions


def _split_pull(context: Mapping[str, Tensor], lr: float) -> tuple[dict[str, Tensor], Pull | None]:
    """Return the context of `proximal` without the pulls that are too strong for a gradient step, and those pulls."""
    anchor, strength = context["anchor"], context["strength"]
    strong = lr * strength > 1
    if not strong.any():
        return dict(context), None
    return {"anchor": anchor, "strength": strength.where(~strong, 0)}, Pull(anchor, strength.where(strong, 0))
