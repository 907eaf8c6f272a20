"""Minibatches in which each sample is with the same chance, whoever else is: what the account of privacy rests on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LOSS_CLIP = 5.0
"""The most that one sample's loss counts for where a loss is released."""


def rate(batch_size: int, size: int) -> float:
    """Return q, the chance of each of `size` samples to be in a minibatch: `batch_size` of them on average."""
    return min(1.0, batch_size / size)


def poisson(size: int, chance: float, stream: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return which of `size` samples are in a minibatch, in ascending order, and the place of each within it.

    Sample j is in it if u_j < q, with u_j uniform and its own: one sample more at the end changes nothing for the
    others. Its place u_j / q is uniform in [0, 1), and says in which part of a minibatch it is: see `in_part`.
    """
    drawn = stream.random(size)
    chosen = np.flatnonzero(drawn < chance)
    return chosen, drawn[chosen] / chance


def most_gradients(parts: Sequence[tuple[int, int]]) -> int:
    """Return how many of the gradients that were taken of parts (i, p) of one minibatch a single sample can be in.

    Place v is in part (i, p) if i - 1 <= v p < i. A sample's place is drawn without looking at it, so that it costs as
    much as its worst place does: c gradients of the whole minibatch are c, one of each half is 1.

    >>> most_gradients([(1, 1), (1, 1)]), most_gradients([(1, 2), (2, 2)]), most_gradients([(2, 3), (3, 3), (1, 2)])
    (2, 1, 2)
    """
    begins = {(i - 1, p) for i, p in parts}  # where a part begins, one more may count: the most is at one of these
    return max((sum((i - 1) * q <= j * p < i * q for i, p in parts) for j, q in begins), default=0)


def loss_steps(batch_size: int, size: int) -> int:
    """Return on how many minibatches a loss is taken where it is released: about as many as make up all samples."""
    return max(1, size // batch_size)
