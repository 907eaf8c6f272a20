"""From counts to samples: amounts are spread over clients and classes, and decks are dealt.

Each class is a shuffled deck, dealt from the top to client 0, 1, ... Where clients may share samples, a deck that runs
out is dealt again from its top.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp import seeds
from fedamp.errors import UserError

Ints = NDArray[np.int64]


def evenly(amount: int, rows: Iterable[int], bins: int, seed: int, purpose: str) -> Ints:
    """Spread an amount over bins in each row: counts in a row differ by at most 1, and so do the column sums.

    What is left over goes to the bins that have the least so far, at random among equals; so a row depends on
    those before it, but not on those after it. `rows` are the coordinates of their streams.
    """
    counts = []
    so_far = np.zeros(bins, np.int64)
    for row in rows:
        ties = seeds.generator(seed, purpose, row).random(bins)
        counts.append(np.full(bins, amount // bins))
        counts[-1][np.lexsort((ties, so_far))[: amount % bins]] += 1
        so_far += counts[-1]
    return np.stack(counts)


def proportional(kind: str, amount: int, have: Ints, num_clients: int, seed: int, parameter: str) -> Ints:
    """Give each client floor(amount have / sum(have)) of each class, and draw the few left over at random."""
    total = int(have.sum())
    if amount > total:
        raise UserError(f"the {kind} pool has {total} samples, but a client asks for {amount}; lower {parameter}")
    whole = amount * have // total
    # If the pool is enough for all, what one client draws is gone for the next.
    enough = amount * num_clients <= total
    left = have - whole * (num_clients if enough else 1)
    counts = []
    for client in range(num_clients):
        stream = seeds.generator(seed, f"{kind}-left-over", client)
        drawn = stream.multivariate_hypergeometric(left, amount - int(whole.sum()))
        counts.append(whole + drawn)
        left = left - drawn * enough
    return np.stack(counts)


def apportion(total: int, weights: NDArray[np.float64], most: Ints | int) -> Ints:
    """Split a total by weights and largest remainders, no count over `most`; the others take the excess."""
    quota = np.zeros(len(weights))
    free = weights > 0
    while free.any():
        quota[free] = (total - quota[~free].sum()) * weights[free] / weights[free].sum()
        full = free & (quota > most)
        quota = np.minimum(quota, most)
        free &= ~full
        if not full.any():
            break
    counts = np.floor(quota).astype(np.int64)
    counts[np.argsort(counts - quota, kind="stable")[: total - counts.sum()]] += 1
    return counts


def deal(
    kind: str, labels: NDArray[Any], pool: Ints, counts: Ints, seed: int, parameter: str, may_share: bool
) -> tuple[tuple[Ints, ...], int]:
    """Return each client's positions, dealt by its counts from each class's shuffled deck, and how many are shared."""
    ends = np.bincount(labels[pool], minlength=counts.shape[1]).cumsum()
    decks = np.split(pool[np.argsort(labels[pool], kind="stable")], ends[:-1])
    dealt, owners, shared = [], [], 0
    for label, (deck, asked) in enumerate(zip(decks, counts.T, strict=True)):
        deck = seeds.generator(seed, f"{kind}-deck", label).permutation(deck)
        has, total = f"class {label} has {len(deck)} {kind} samples", int(asked.sum())
        if asked.max() > len(deck):
            raise UserError(f"{has}, but client {asked.argmax()} asks for {asked.max()}; lower {parameter}")
        if total > len(deck) and not may_share:
            remedy = f"lower {parameter}, use fewer clients, or let clients share samples (share_samples=true)"
            raise UserError(f"{has}, but the clients ask for {total} of it; {remedy}")
        # No client takes more than a deck, so a sample that is dealt again goes to another client.
        dealt.append(deck[np.arange(total) % max(1, len(deck))])
        owners.append(np.repeat(np.arange(len(counts)), asked))
        shared += min(max(0, total - len(deck)), len(deck))
    positions = np.concatenate(dealt)
    order = np.lexsort((positions, np.concatenate(owners)))
    return tuple(np.split(positions[order], counts.sum(axis=1).cumsum()[:-1])), shared


def sorted_pool(kind: str, pool: NDArray[Any], labels: NDArray[Any]) -> Ints:
    """Return a pool in ascending order: which positions it has matters, their order doesn't."""
    pool = np.asarray(pool)
    if pool.size == 0:
        raise UserError(f"the {kind} pool is empty; expected at least one sample")
    valid = pool.ndim == 1 and pool.dtype.kind in "iu" and pool.min() >= 0 and pool.max() < len(labels)
    if not valid or len(np.unique(pool)) < len(pool):
        raise ValueError(f"the {kind} pool is {pool!r}; expected distinct positions from 0 to {len(labels) - 1}")
    return np.sort(pool).astype(np.int64)


def check_classes(have: Ints) -> None:
    """Raise unless the training pool has every class."""
    for label in np.flatnonzero(have == 0):
        raise UserError(
            f"class {label} has no training samples; expected some of every class from 0 to {len(have) - 1}"
        )
