"""Gaussian noise, a stream for each client: the same alone and among others."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedamp import seeds


class Noise:
    """Standard normal numbers of one client in one pass, one gradient after another.

    On a CPU they come from numpy, whose seed has 128 bits: torch's generator there has 32, which can be guessed. On a
    GPU they are drawn where they are needed, from a seed of 63 bits.
    """

    def __init__(self, seed: int, device: torch.device, *coordinates: int) -> None:
        self.device = device
        if device.type == "cpu":
            self.numpy = seeds.generator(seed, "private noise", *coordinates)
        else:
            self.torch = torch.Generator(device).manual_seed(seeds.number(seed, "private noise", *coordinates))

    def draw(self, count: int, dtype: torch.dtype) -> Tensor:
        """Return the next numbers, `(count,)`."""
        if self.device.type != "cpu":
            return torch.randn(count, generator=self.torch, device=self.device, dtype=dtype)
        kind = np.float64 if dtype == torch.float64 else np.float32
        return torch.from_numpy(self.numpy.standard_normal(count, kind)).to(dtype)
