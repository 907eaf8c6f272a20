"""The data behind the page's plots, as plain values ready for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.config.metrics import info
from fedamp.report.clients import clients_of, run_of
from fedamp.report.groups import Block, Group
from fedamp.report.packing import plain
from fedamp.report.run_scores import client_names
from fedamp.report.table import ALONE, counterpart
from fedamp.report.weights import recovery, weights_of, xi_of

XI_BYTES = 3_600_000
"""Bytes of collaboration weights on a page, so that it stays below 8 MB; if there are more, rounds are left out."""
CURVE_BYTES = 900_000
"""Bytes of single clients' curves on a page; if there are more, rounds are left out."""


def figures(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return each block's plots: methods with curves, weights and group recovery, and every client of every run."""
    groups = [group for block in blocks for group in block.groups]
    with_xi = sum(any(xi_of(trial) is not None for trial in group.trials) for group in groups)
    xi_share = XI_BYTES // max(1, with_xi)
    curve_share = CURVE_BYTES // max(1, sum(len(group.trials) for group in groups))
    return [_block(block, xi_share, curve_share) for block in blocks]


def _block(block: Block, xi_share: int, curve_share: int) -> dict[str, Any]:
    metric = info(block.metric)
    groups = [group for group in block.groups if group.trials]
    by_seed = {trial.seed: trial for group in reversed(groups) for trial in reversed(group.trials)}
    return {
        "label": block.label,
        "metric": metric.label,
        "unit": metric.unit,
        "decimals": 2 if metric.unit == "%" else 4 if metric.shares else None,  # None: four digits that count
        "higher": metric.higher_is_better,
        "alone": ALONE if any(group.name == ALONE for group in groups) else None,
        "seeds": [{"seed": seed, "clients": clients_of(by_seed[seed])} for seed in sorted(by_seed)],
        "methods": [_method(block, group, xi_share, curve_share) for group in groups],
    }


def _method(block: Block, group: Group, xi_share: int, curve_share: int) -> dict[str, Any]:
    found = [(trial, xi_of(trial)) for trial in group.trials]
    weights = [(trial, xi) for trial, xi in found if xi is not None]
    known = [(xi, groups) for trial, xi in weights if (groups := trial.facts.groups)]
    losses = [means for trial in group.trials if len(means := trial.loss_means)]
    alone = counterpart(block, ALONE, group)
    beside = {} if alone is None or alone is group else {trial.seed: trial for trial in alone.trials}
    return {
        "name": group.label,
        "seeds": [trial.seed for trial in group.trials],
        "curve": _band([trial.means for trial in group.trials]),
        "loss": _band(losses) if losses else None,
        "clients": [
            {"score": plain(score), "name": f"{client_names(trial)[client]}, seed {trial.seed}"}
            for trial in group.trials
            for client, score in zip(np.flatnonzero(trial.counted), trial.per_client, strict=True)
        ],
        "recovery": _band([recovery(xi, groups) for xi, groups in known]) if known else None,
        "xi": weights_of(*weights[0], xi_share) if weights else None,
        "runs": [run_of(trial, xi, beside.get(trial.seed), curve_share) for trial, xi in found],
    }


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


def _list(values: NDArray[np.float64]) -> list[float | None]:
    return [plain(value) for value in values]
