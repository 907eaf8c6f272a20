"""How a client's samples are protected while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Privacy:
    """Each sample's gradient is clipped to `clip`, and the sum of a minibatch gets Gaussian noise.

    A minibatch has each of a client's n samples with probability q = batch_size / n (at most 1), independently of all
    others; its gradient is (sum of clipped gradients + N(0, (z clip)^2)) / (q n).
    """

    clip: float  # C: the longest that the gradient of one sample may be
    noise: Mapping[int, float]  # z, by the client's number: the noise's standard deviation is z C
    secret: int | None = None
    """What minibatches and noise are drawn from. None is the run's seed, which everybody knows: for a simulation, where
    nobody is to be protected. A silo draws a new secret for each round."""
