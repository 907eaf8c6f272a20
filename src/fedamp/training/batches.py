"""Which samples make up each local step of a client."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedamp import checks
from fedamp.errors import UserError


@dataclass(frozen=True)
class Batching:
    """Minibatches of a round: `epochs` passes over the client's samples, or exactly `steps` batches.

    Every pass shuffles anew. The last batch of a pass may be smaller and then counts as one step, as in a
    plain loop; a last batch of one sample joins the batch before it, since BatchNorm can't take it.
    """

    batch_size: int = 100
    epochs: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        checks.count("batch_size", self.batch_size)
        if (self.epochs is None) == (self.steps is None):
            given = f"epochs={self.epochs} and steps={self.steps}"
            raise UserError(f"got {given}; expected exactly one of the two: passes over the data, or batches")
        checks.count(*(("epochs", self.epochs) if self.steps is None else ("steps", self.steps)))

    def cuts(self, size: int) -> list[tuple[int, int]]:
        """Return where the batches of one pass over `size` samples begin and end."""
        begins = list(range(0, size, self.batch_size))
        if len(begins) > 1 and size - begins[-1] == 1 and self.batch_size > 1:
            begins.pop()
        return list(zip(begins, [*begins[1:], size], strict=True))

    def num_steps(self, size: int) -> int:
        """Return K_i, the steps that a client with `size` samples takes in a round."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        whole, rest = divmod(size, self.batch_size)  # as `cuts` does, but without a list that is as long as `size`
        joins = rest == 1 and whole > 0
        return self.epochs * (whole + (rest > 0) - joins)

    def samples(self, size: int) -> int:
        """Return how many samples, some of them more than once, a client with `size` goes through in a round."""
        num_steps, lengths = self.num_steps(size), [end - begin for begin, end in self.cuts(size)]
        return num_steps // len(lengths) * size + sum(lengths[: num_steps % len(lengths)])

    def draw(self, size: int, stream: np.random.Generator) -> list[Tensor]:
        """Return the positions of each step's samples, among `size`."""
        batches: list[Tensor] = []
        num_steps, lengths = self.num_steps(size), [end - begin for begin, end in self.cuts(size)]
        while len(batches) < num_steps:
            batches += torch.split(torch.from_numpy(stream.permutation(size)), lengths)
        return batches[:num_steps]

    def table(self, size: int, stream: np.random.Generator) -> tuple[NDArray[np.int64], list[int]]:
        """Return the same as one table `(steps, longest)`, and the length of each step; what lies beyond is padding."""
        num_steps, (index, lengths) = self.num_steps(size), _grid(self, size)
        passes = -(-num_steps // len(lengths))
        orders = np.stack([stream.permutation(size) for _ in range(passes)])
        return orders[:, index].reshape(-1, index.shape[1])[:num_steps], (lengths * passes)[:num_steps]


@lru_cache(maxsize=1024)
def _grid(batching: Batching, size: int) -> tuple[NDArray[np.int64], list[int]]:
    """Return the places of each batch's samples in a shuffled pass, `(batches, longest)`, and the batches' lengths."""
    cuts = batching.cuts(size)
    lengths = [end - begin for begin, end in cuts]
    places = np.array([begin for begin, _ in cuts])[:, None] + np.arange(max(lengths))
    return places.clip(max=size - 1), lengths
