"""Local training in one round: what both ways of walking the minibatches share.

There are two, with the same numbers up to rounding. `one_at_a_time.LocalLoop` trains one client at a time, each as a
stack of height one: exactly the path that a silo runs. `stacked.all_at_once.LocalStack` trains all clients at once.
"""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from fedamp import seeds
from fedamp.data.clients import Clients
from fedamp.methods.base import descent, proximal
from fedamp.models import columns
from fedamp.models.dropout import dropout_key
from fedamp.privacy.events import Spending
from fedamp.rows import Columns, Rows
from fedamp.training.batches import Batching
from fedamp.training.evaluate import evaluate
from fedamp.training.optimizers import Optimizer, Pull
from fedamp.training.precision import use_precision
from fedamp.training.private import parts
from fedamp.training.private.losses import private_loss
from fedamp.training.private.streams import Streams
from fedamp.training.private.walk import Account

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
        self.number = 0  # of the pass; see `again`
        self.only: Columns | None = None
        self.losses: dict[str, Tensor] = {}
        """Mean training loss of each client over its steps, `(n,)`, by the entry of `start`; filled by `run`."""
        self.spent: list[Spending] = [Counter() for _ in range(len(clients))]
        """What each client's privacy was spent on in this round, in all of its passes; nothing where there is none."""
        self.variances: dict[str, Tensor] = {}  # (n,) by entry, of the last `run`: see `noise`
        self._released: Iterator[int] = itertools.count()  # numbers all that samples are used for in this round
        self.release = 0  # the number of the present one
        self._known: tuple[int, ...] | None = None  # see `size`

    def size(self, i: int) -> int:
        """Return how many training samples the client at position i has.

        Where samples are protected, how many are in a part of them is a secret: it is the number to be expected.
        """
        return len(self.clients.train[i]) if self._known is None else self._known[i]

    @property
    def sizes(self) -> Tensor:
        """Training samples of each client, `(n, 1)`."""
        return torch.tensor([[self.size(i)] for i in range(len(self.clients))], device=self.clients.x.device)

    @property
    def steps(self) -> Tensor:
        """Steps K_i that each client takes in a round, `(n, 1)`."""
        counts = [[self.config.batching.num_steps(self.size(i))] for i in range(len(self.clients))]
        return torch.tensor(counts, device=self.clients.x.device)

    @property
    def batch_size(self) -> int:
        """Samples of a minibatch; on average, where samples are protected."""
        return self.config.batching.batch_size

    @property
    def lr(self) -> float:
        """The optimiser's learning rate."""
        return self.config.optimizer.lr

    @property
    def epochs(self) -> int | None:
        """Passes over each client's samples in a round; None if a round is a number of steps."""
        return self.config.batching.epochs

    def part(self, half: Tensor) -> LocalTraining:
        """Return the same training on a part of each client's samples, by `half` `(n, 1)`: 1 or 2; 0 is all of them.

        Which samples are in which half depends on seed and client alone, so that two rounds can share one split. Rows
        of silos' files are halved by what they hold: if some come or go between the two rounds, at most half as many of
        the others change halves.
        """
        wanted = [int(number) for number in half[:, 0].tolist()]
        if not {0, 1, 2}.issuperset(wanted):  # a server may send anything
            raise ValueError(f"half is {wanted}; expected 1 or 2, or 0 for all samples")
        if not any(wanted):
            return self
        if self.config.privacy is not None:
            return self._private_part(wanted)
        return self._on(tuple(self._half(i, which) for i, which in enumerate(wanted)))

    def _half(self, i: int, which: int) -> Tensor:
        mine = self.clients.train[i]
        if which == 0 or len(mine) < SPLIT:
            return mine
        order, middle = self._order(i, "halves"), len(mine) // 2
        return mine[order[:middle] if which == 1 else order[middle:]]

    def _private_part(self, wanted: list[int]) -> Self:
        train, known = list(self.clients.train), [self.size(i) for i in range(len(wanted))]
        for i, which in enumerate(wanted):
            if which and known[i] >= SPLIT:
                first = parts.below(self.clients, i, 0.5, self.config.seed, "halves")
                train[i], known[i] = train[i][first if which == 1 else ~first], (known[i] + which - 1) // 2
        return self._on(tuple(train), tuple(known))

    def held_out(self, share: float) -> tuple[Self, Self]:
        """Return the same training without a share of each client's samples, and on that share: see `Local`.

        Rows of silos' files are told apart by what they hold, as in `part`.
        """
        if self.config.privacy is not None:
            return self._private_held_out(share)
        kept, held = [], []
        for i, mine in enumerate(self.clients.train):
            if len(mine) < SPLIT:
                held.append(mine)
                kept.append(mine)
                continue
            order, count = self._order(i, "held out"), min(len(mine) - 2, max(2, round(share * len(mine))))
            held.append(mine[order[:count]])
            kept.append(mine[order[count:]])
        return self._on(tuple(kept)), self._on(tuple(held))

    def _private_held_out(self, share: float) -> tuple[Self, Self]:
        train, known = self.clients.train, [self.size(i) for i in range(len(self.clients))]
        kept, held, rest = list(train), list(train), list(known)
        for i, size in enumerate(known):
            if size >= SPLIT:
                known[i] = min(size - 2, max(2, round(share * size)))
                rest[i] = size - known[i]
                away = parts.below(self.clients, i, share, self.config.seed, "held out")
                held[i], kept[i] = train[i][away], train[i][~away]
        return self._on(tuple(kept), tuple(rest)), self._on(tuple(held), tuple(known))

    def _order(self, i: int, purpose: str) -> Tensor:
        """Return a client's training samples, as positions among them, in an order of this purpose."""
        mine = self.clients.train[i]
        if self.clients.digests is None:
            order = seeds.generator(self.config.seed, purpose, self.clients.numbers[i]).permutation(len(mine))
        else:
            order = np.argsort(self.clients.lots(mine, self.config.seed, purpose), kind="stable")
        return torch.from_numpy(order).to(mine.device)

    def _on(self, train: tuple[Tensor, ...], known: tuple[int, ...] | None = None) -> Self:
        """Return the same training on other samples; both fill one record of the round."""
        part = copy.copy(self)
        part.clients, part._known = self.clients.training_on(train), known
        return part

    def again(
        self,
        number: int = 1,
        *,
        epochs: int | None = None,
        optimizer: str | None = None,
        lr: float | None = None,
        only: Columns | None = None,
    ) -> Self:
        """Return another pass of the round, with minibatches of its own: see `Local`; one record of the round."""
        batching, chosen = self.config.batching, self.config.optimizer
        if epochs is not None:
            batching = Batching(batching.batch_size, epochs=epochs)
        if optimizer is not None:
            chosen = Optimizer(optimizer, chosen.lr)
        if lr is not None:
            chosen = replace(chosen, lr=lr)
        other = copy.copy(self)
        other.config = replace(self.config, batching=batching, optimizer=chosen)
        other.number, other.only = number, only
        return other

    def head(self, layers: int = 1) -> Columns:
        """Return the columns of the last layers: see `Local`."""
        return columns.head(self.trainer.model, layers).to(self.clients.x.device)

    def norm(self) -> Columns:
        """Return the columns of the normalisations: see `Local`."""
        return columns.norm(self.trainer.model).to(self.clients.x.device)

    def loss(self, rows: Rows) -> Tensor:
        """Return the mean loss of each client's row on all of its training samples, `(n, 1)`: no training.

        It is the loss that they train by, class weights included: what a method compares with its own steps.
        """
        if self.config.privacy is not None:
            self.release = next(self._released)
            return private_loss(self, rows)
        scores = evaluate(self.trainer, self.clients, rows, "train", weighted=True)
        return scores.loss[:, None].to(self.clients.x.device)

    def noise(self, of: str = "") -> Tensor:
        """Return the variance that privacy's noise has put into the rows that `run` returned last: see `Local`."""
        none = torch.zeros(len(self.clients), dtype=torch.float64, device=self.clients.x.device)
        return self.variances.get(of, none)[:, None]

    def at_home(self) -> Self:
        """Return the same training for a model that never leaves its client: see `Local`."""
        here = copy.copy(self)
        here.config, here._known = replace(self.config, privacy=None), None
        return here

    def run(self, start: Any, direction: Any, **context: Tensor) -> Any:
        """Return where the rows that start at `start` (rows, or a dict of them) and follow `direction` end."""
        pull = None
        self.variances.clear()
        if self.config.privacy is not None:
            self.release = next(self._released)
        if direction is proximal:
            context, pull = _split_pull(context, self.lr)
        with use_precision(self.config.precision, self.clients.x.device):
            if isinstance(start, Rows):
                known = PLAIN if direction is descent else PROXIMAL if direction is proximal else None
                return self._run({"": start}, known or _single(direction), context, pull)[""]
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
        """Return the stream that shuffles the samples of the client at position i in this pass."""
        return seeds.generator(self.config.seed, "batches", self.clients.numbers[i], *self.when)

    def dropout_key(self, i: int) -> Tensor:
        """Return the key of this pass's dropout masks of the client at position i, `(2,)` on the CPU."""
        return dropout_key(self.config.seed, self.clients.numbers[i], *self.when)

    @property
    def streams(self) -> Streams:
        """What is drawn at random in this pass to protect samples."""
        privacy = self.config.privacy
        seed = self.config.seed if privacy is None or privacy.secret is None else privacy.secret
        return Streams(seed, (self.k, self.release), self.clients.x.device)

    def take_account(self, who: Sequence[int], account: Account) -> None:
        """Write down what the walk of the clients at positions `who` has spent, and what its noise has done."""
        for i, spent in zip(who, account.spent, strict=True):
            self.spent[i].update(spent)
        for name, found in account.variances.items():
            self.variances.setdefault(name, found.new_zeros(len(self.clients)))[list(who)] = found

    @property
    def when(self) -> tuple[int, ...]:
        """The coordinates of this pass: the round, and after the first pass of the round its number."""
        return (self.k, self.number) if self.number else (self.k,)

    def step(self, w: Tensor, move: Tensor, moments: tuple[Tensor, ...], t: int, pull: Pull | None) -> None:
        """Let the optimiser take step t in place; with `only`, the other columns of models go back to where they were.

        Not by a direction of 0: momentum, weight decay and a pull would move them all the same.
        """
        if self.only is None:
            self.config.optimizer.step(w, move, moments, t, pull)
            return
        before = w.clone()
        self.config.optimizer.step(w, move, moments, t, pull)
        w.copy_(torch.where(self.only.params, w, before))

    def steps_in_one(self, w: Tensor) -> bool:
        """Return whether `step_along` is there for a pass over these rows."""
        return self.only is None and self.config.optimizer.steps_in_one(w)

    def step_along(self, w: Tensor, gradient: Tensor, moments: tuple[Tensor, ...], t: int, **pull: Tensor) -> None:
        """Let the optimiser take step t along `descent`, or along `proximal` with its anchor and strength, in place."""
        self.config.optimizer.step_along(w, gradient, moments, t, **pull)


def part_of(length: int, part: tuple[int, int]) -> slice:
    """Return where the i-th of p equal parts of a minibatch lies; one of fewer than 2 p samples is not cut.

    >>> part_of(7, (2, 2)), part_of(3, (2, 2))
    (slice(3, 7, None), slice(0, 3, None))
    """
    i, p = part
    if not 1 <= i <= p:
        raise ValueError(f"part is {part}; expected (i, p) with i from 1 to p")
    return slice(0, length) if length < 2 * p else slice((i - 1) * length // p, i * length // p)


def _single(direction: Any) -> Any:
    """Return a direction of one stack as one of a dict with one entry."""

    def directions(rows: Mapping[str, Tensor], grad: Any, **context: Tensor) -> dict[str, Tensor]:
        return {"": direction(rows[""], grad, **context)}

    return directions


PLAIN, PROXIMAL = _single(descent), _single(proximal)
"""The two directions that a way of training knows: it may compute them in memory that it uses again."""


def _split_pull(context: Mapping[str, Tensor], lr: float) -> tuple[dict[str, Tensor], Pull | None]:
    """Return the context of `proximal` without the pulls that are too strong for a gradient step, and those pulls."""
    anchor, strength = context["anchor"], context["strength"]
    strong = lr * strength > 1
    if not strong.any():
        return dict(context), None
    return {"anchor": anchor, "strength": strength.where(~strong, 0)}, Pull(anchor, strength.where(strong, 0))
