"""The data behind the page's plots, as plain values ready for JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.config.metrics import info
from fedamp.errors import UserError
from fedamp.report.groups import Block, Group
from fedamp.report.run_scores import Trial
from fedamp.report.stats import adjusted_rand_index, discovered_groups, order_by_group

XI_BYTES = 3_600_000
"""Bytes of collaboration weights on a page, so that it stays below 8 MB; if there are more, rounds are left out."""


def figures(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return each block's plots: methods with curves, clients' scores, group recovery and weights."""
    with_xi = [group for block in blocks for group in block.groups if _first_xi(group) is not None]
    share = XI_BYTES // max(1, len(with_xi))
    return [
        {
            "label": block.label,
            "metric": info(block.metric).label,
            "higher": block.higher,
            "methods": [_method(group, share) for group in block.groups if group.trials],
        }
        for block in blocks
    ]


def _method(group: Group, share: int) -> dict[str, Any]:
    weights = [(trial, xi) for trial in group.trials if (xi := xi_of(trial)) is not None]
    known = [(xi, groups) for trial, xi in weights if (groups := trial.facts.groups)]
    return {
        "name": group.label,
        "seeds": [trial.seed for trial in group.trials],
        "curve": _band([trial.means for trial in group.trials]),
        "clients": [
            {"score": _plain(score), "name": f"{client_names(trial)[client]}, seed {trial.seed}"}
            for trial in group.trials
            for client, score in zip(np.flatnonzero(trial.counted), trial.per_client, strict=True)
        ],
        "recovery": _band([recovery(xi, groups) for xi, groups in known]) if known else None,
        "xi": weights_of(*weights[0], share) if weights else None,
    }


def client_names(trial: Trial) -> list[str]:
    """Return the silos' names, or numbers if they have none."""
    num_clients = trial.scores.shape[1]
    names = trial.facts.names
    if names is not None and len(names) == num_clients:
        return [str(name) for name in names]
    return [f"client {number}" for number in range(num_clients)]


def recovery(xi: NDArray[Any], groups: Sequence[int]) -> NDArray[np.float64]:
    """Return the adjusted Rand index of the groups that each round's weights `(K, m, m)` show."""
    number = len(set(groups))
    return np.array([adjusted_rand_index(discovered_groups(each, number).tolist(), groups) for each in xi])


def _first_xi(group: Group) -> NDArray[np.float32] | None:
    return next((xi for trial in group.trials if (xi := xi_of(trial)) is not None), None)


def xi_of(trial: Trial) -> NDArray[np.float32] | None:
    """Return a run's collaboration weights `(K, m, m)`; None if it has none yet."""
    xi, num_clients = trial.record.xi(), trial.scores.shape[1]
    if xi is not None and (xi.ndim != 3 or xi.shape[1:] != (num_clients, num_clients)):
        raise UserError(
            f"{trial.record.path} has collaboration weights of shape {xi.shape}; "
            f"expected (rounds, {num_clients}, {num_clients}); the folder is damaged; leave it out"
        )
    return xi if xi is not None and len(xi) else None


def _band(curves: Sequence[NDArray[np.float64]]) -> dict[str, Any]:
    """Return mean, lowest and highest over seeds, round by round; a shorter run ends early.

    If one seed is not finite, neither is the mean: the other seeds alone would flatter the method.
    """
    longest = max(len(curve) for curve in curves)
    table = np.full((len(curves), longest), np.nan)
    for line, curve in zip(table, curves, strict=True):
        line[: len(curve)] = curve
    known = ~np.isnan(table)
    count = known.sum(0)
    mean = np.where(count, np.where(known, table, 0).sum(0) / np.maximum(count, 1), np.nan)
    low = np.where(count, np.where(known, table, np.inf).min(0), np.nan)
    high = np.where(count, np.where(known, table, -np.inf).max(0), np.nan)
    return {"mean": _list(mean), "low": _list(low), "high": _list(high)}


def weights_of(trial: Trial, xi: NDArray[np.float32], share: int) -> dict[str, Any]:
    """Return one run's weights, a byte each, of as many rounds as fit into the run's share of the page."""
    m = xi.shape[1]
    keep = min(len(xi), max(2, share // (m * m)))
    rounds = np.unique(np.linspace(0, len(xi) - 1, keep).round().astype(int))
    groups = trial.facts.groups
    found = discovered_groups(xi[-1], len(set(groups)) if groups else None)
    order = order_by_group(found)
    names = client_names(trial)
    shown = np.nan_to_num(xi[np.ix_(rounds, order, order)].astype(np.float64))
    top = float(shown.max()) or 1.0
    # The root spends a byte's steps on small weights: the first step is a 65000th of the largest weight.
    steps = np.round(255 * np.sqrt(np.clip(shown / top, 0, 1))).astype(np.uint8)
    return {
        "seed": trial.seed,
        "rounds": [int(each) + 1 for each in rounds],
        "size": m,
        "top": top,
        "clients": [names[client] for client in order],
        "found": found[order].tolist(),
        "true": [groups[client] for client in order] if groups else None,
        "bytes": base64.b64encode(steps.tobytes()).decode("ascii"),
    }


def _list(values: NDArray[np.float64]) -> list[float | None]:
    return [_plain(value) for value in values]


def _plain(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None
