"""Whose samples are whose: one pool of samples, and for each client the positions of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Clients:
    """The training data of a stack of clients; in a silo, of one.

    `numbers` are the clients' coordinates, fixed when the federation is made: they seed a client's batches,
    whoever else is here.
    """

    x: Tensor  # (N, ...)
    y: Tensor  # (N, ...)
    train: tuple[Tensor, ...]  # n vectors of positions in x and y
    numbers: tuple[int, ...]  # (n,)

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"there are {len(self.x)} inputs and {len(self.y)} targets; expected one for each")
        if not self.train:
            raise ValueError("there are no clients; expected at least one")
        if len(self.train) != len(self.numbers) or len(set(self.numbers)) != len(self.numbers):
            raise ValueError(
                f"got numbers {self.numbers} for {len(self.train)} clients; expected one each, no twice"
            )
        for number, positions in zip(self.numbers, self.train, strict=True):
            if not len(positions):
                raise ValueError(f"client {number} has no training samples; expected at least one")

    def __len__(self) -> int:
        return len(self.train)

    @classmethod
    def of(cls, pairs: Sequence[tuple[Tensor, Tensor]], numbers: Sequence[int] | None = None) -> Clients:
        """Return clients from an (x, y) for each; they are numbered from 0 unless numbers are given."""
        ends = torch.tensor([len(x) for x, _ in pairs]).cumsum(0).tolist() if pairs else []
        return cls(
            torch.cat([x for x, _ in pairs]) if pairs else torch.empty(0),
            torch.cat([y for _, y in pairs]) if pairs else torch.empty(0),
            tuple(torch.arange(end - len(x), end) for (x, _), end in zip(pairs, ends, strict=True)),
            tuple(range(len(pairs))) if numbers is None else tuple(numbers),
        )

    def take(self, index: Tensor) -> Clients:
        """Return the clients at these positions, in this order, over the same pool."""
        chosen = index.tolist()
        return Clients(
            self.x, self.y, tuple(self.train[i] for i in chosen), tuple(self.numbers[i] for i in chosen)
        )
