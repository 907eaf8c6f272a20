"""Which samples make up each local step of a client."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedamp import checks


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
            raise ValueError(f"got {given}; expected exactly one of the two: passes over the data, or batches")
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
        return self.epochs * len(self.cuts(size))

    def draw(self, size: int, stream: np.random.Generator) -> list[Tensor]:
        """Return the positions of each step's samples, among `size`."""
        batches: list[Tensor] = []
        while len(batches) < self.num_steps(size):
            order = torch.from_numpy(stream.permutation(size))
            batches += [order[begin:end] for begin, end in self.cuts(size)]
        return batches[: self.num_steps(size)]
