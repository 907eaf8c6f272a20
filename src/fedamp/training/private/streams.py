"""What is drawn at random to protect samples: minibatches, noise and dropout masks, each client's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedamp import seeds
from fedamp.models.dropout import dropout_key
from fedamp.training.private.noise import Noise


@dataclass(frozen=True)
class Streams:
    """The streams of one pass.

    `seed` is the silo's secret: who knows it can subtract the noise. `when` are the round and the number of the pass
    among all that the round has taken. No two passes share a draw: the account takes them for independent, and one
    noise in two gradients would cancel in their difference.
    """

    seed: int
    when: tuple[int, int]
    device: torch.device

    def draws(self, client: int) -> np.random.Generator:
        """Return the stream of a client's minibatches, by its number."""
        return seeds.generator(self.seed, "private batches", client, *self.when)

    def noise(self, client: int) -> Noise:
        """Return the stream of a client's noise."""
        return Noise(self.seed, self.device, client, *self.when)

    def dropout_key(self, client: int) -> Tensor:
        """Return the key of a client's dropout masks, `(2,)`."""
        return dropout_key(self.seed, client, *self.when).to(self.device)

    def other(self, client: int) -> int:
        """Return the seed of a client's other randomness."""
        return seeds.number(self.seed, "other randomness", client, *self.when)
