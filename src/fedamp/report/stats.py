"""Do two methods differ, and which clients belong together: statistics over clients."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster, linkage  # type: ignore[import-untyped]
from scipy.spatial.distance import squareform  # type: ignore[import-untyped]
from scipy.stats import wilcoxon  # type: ignore[import-untyped]

from fedamp.errors import UserError

DIGITS = 9
"""Differences are rounded to this many digits: 0.3 - 0.2 and 0.2 - 0.1 are a tie, not two ranks."""


def wilcoxon_p(a: ArrayLike, b: ArrayLike) -> tuple[float | None, str]:
    """Return the two-sided p of the Wilcoxon signed-rank test of paired scores, or None and the reason in words.

    A client without a score (nan) is left out. An error that is not finite is larger than all others: if one method
    fails and the other does not, that is a difference; if both fail, it is not.

    >>> wilcoxon_p([1, 2, 3, 4, 5], [0, 0, 0, 0, 0])
    (0.0625, '')
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise UserError(f"got scores of shapes {first.shape} and {second.shape}; expected one score per client in both")
    known = ~(np.isnan(first) | np.isnan(second))
    first, second = first[known], second[known]
    gain = np.round(np.subtract(first, second, where=first != second, out=np.zeros(len(first))), DIGITS)
    # The test only sees ranks: any number beyond all others can stand for one that is not finite.
    beyond = 1 + np.abs(gain, where=np.isfinite(gain), out=np.zeros(len(gain))).max(initial=0)
    gain = np.clip(gain, -beyond, beyond)
    if len(gain) < 2:
        return None, "fewer than 2 clients"
    if not gain.any():
        return None, "all clients equal"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about small samples and ties: the p is still the one to show
        p = float(wilcoxon(gain, zero_method="wilcox", alternative="two-sided").pvalue)
    return (p, "") if np.isfinite(p) else (None, "not defined")


def short_p(p: float) -> str:
    """Return a p with two digits, or more if two would hide on which side of 0.05 it is.

    >>> short_p(0.0123), short_p(0.0497), short_p(0.00001)
    ('0.012', '0.0497', '< 1e-4')
    """
    if p < 1e-4:
        return "< 1e-4"
    texts = (format(p, f".{digits}g") for digits in range(2, 18))
    return next(text for text in texts if (float(text) < 0.05) == (p < 0.05))


def adjusted_rand_index(a: Sequence[Any], b: Sequence[Any]) -> float:
    """Return how well two groupings agree: 1 for the same groups under any names, about 0 by chance.

    >>> adjusted_rand_index([0, 0, 1, 1], ["x", "x", "y", "y"])
    1.0
    """
    if len(a) != len(b):
        raise UserError(f"got groups of {len(a)} and of {len(b)} clients; expected the same number in both")
    rows, columns = np.unique(list(a), return_inverse=True)[1], np.unique(list(b), return_inverse=True)[1]
    if not len(rows):
        return 1.0
    counts = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(counts, (rows, columns), 1)
    together, in_a, in_b = _pairs(counts), _pairs(counts.sum(1)), _pairs(counts.sum(0))
    all_pairs = _pairs(np.array([len(rows)]))
    expected = in_a * in_b / all_pairs if all_pairs else 0.0
    most = (in_a + in_b) / 2
    return 1.0 if most == expected else float((together - expected) / (most - expected))


def _pairs(counts: NDArray[Any]) -> float:
    return float((counts * (counts - 1) / 2).sum())


def discovered_groups(xi: ArrayLike, num_groups: int | None = None) -> NDArray[np.int64]:
    """Return the group of each client, numbered by first appearance, from collaboration weights `(m, m)`.

    Average linkage on one minus the symmetrised weight, normalised by the largest between two clients. If the
    number of groups is not given, the tree is cut where the step from one merger to the next is largest.
    """
    weights = np.nan_to_num(np.asarray(xi, dtype=np.float64))
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        raise UserError(f"xi has shape {weights.shape}; expected (m, m): a weight for each pair of clients")
    likeness = (weights + weights.T) / 2
    np.fill_diagonal(likeness, 0)
    if len(likeness) < 2 or likeness.max() <= 0:  # nobody listens to anybody
        return np.arange(len(likeness))
    distances = np.clip(1 - likeness / likeness.max(), 0, None)
    np.fill_diagonal(distances, 0)
    tree = linkage(squareform(distances, checks=False), method="average")
    if num_groups is not None:
        return _by_appearance(fcluster(tree, num_groups, criterion="maxclust"))
    heights = tree[:, 2]
    steps = np.diff(heights)
    if not len(steps) or steps.max() < 1e-6:  # everyone is equally near to everyone
        return np.zeros(len(likeness), dtype=np.int64)
    widest = int(steps.argmax())
    return _by_appearance(fcluster(tree, (heights[widest] + heights[widest + 1]) / 2, criterion="distance"))


def _by_appearance(labels: NDArray[Any]) -> NDArray[np.int64]:
    names = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
    return np.array([names[label] for label in labels.tolist()], dtype=np.int64)


def order_by_group(labels: ArrayLike) -> NDArray[np.int64]:
    """Return the clients' numbers, group by group, in order within each group.

    >>> order_by_group([0, 1, 0, 1]).tolist()
    [0, 2, 1, 3]
    """
    return np.argsort(np.asarray(labels), kind="stable").astype(np.int64)
