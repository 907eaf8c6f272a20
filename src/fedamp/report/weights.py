"""Collaboration weights for the page: who listens to whom, round by round, and whether the true groups show in it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.errors import UserError
from fedamp.report.packing import thinned
from fedamp.report.run_scores import Trial, client_names
from fedamp.report.stats import adjusted_rand_index, discovered_groups, order_by_group


def xi_of(trial: Trial) -> NDArray[np.float32] | None:
    """Return a run's collaboration weights `(K, m, m)`; None if it has none yet."""
    xi, num_clients = trial.record.xi(), trial.scores.shape[1]
    if xi is not None and (xi.ndim != 3 or xi.shape[1:] != (num_clients, num_clients)):
        raise UserError(
            f"{trial.record.path} has collaboration weights of shape {xi.shape}; "
            f"expected (rounds, {num_clients}, {num_clients}); the folder is damaged; leave it out"
        )
    return xi if xi is not None and len(xi) else None


def recovery(xi: NDArray[Any], groups: Sequence[int]) -> NDArray[np.float64]:
    """Return the adjusted Rand index of the groups that each round's weights `(K, m, m)` show."""
    number = len(set(groups))
    return np.array([adjusted_rand_index(discovered_groups(each, number).tolist(), groups) for each in xi])


def weights_of(trial: Trial, xi: NDArray[np.float32], share: int) -> dict[str, Any]:
    """Return one run's weights, a byte each, of as many rounds as fit into the run's share of the page."""
    m = xi.shape[1]
    rounds = thinned(len(xi), share // (m * m))
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
