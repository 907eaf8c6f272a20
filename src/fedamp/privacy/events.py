"""What a client's privacy was spent on: steps on random minibatches, each with noise."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class Event(NamedTuple):
    """A step whose minibatch has each sample with probability `rate`, and whose noise is `noise` times the most that
    one sample can change what is released: the Poisson-subsampled Gaussian mechanism.

    Gradients that are taken of one and the same minibatch share its draw, so that c of them are one event with
    noise z / sqrt(c), and not c events.
    """

    rate: float
    noise: float


Spending = Counter[Event]
"""How many steps of each kind a client has taken."""
