"""What is kept of a run: a few kilobytes that hold all that the page shows."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import fedamp
from fedamp.config import RunConfig
from fedamp.records.summaries import client_means, counted_clients, score_table, summarise
from fedamp.report.weights import recovery

ENTRIES = ("own", "received")


def distil(
    config: RunConfig,
    lines: Sequence[Mapping[str, Any]],
    groups: Sequence[int] | None,
    xi: NDArray[Any] | None,
    keeps_weights: bool = True,
) -> dict[str, Any]:
    """Return a run's scores on test and validation samples, its weights `xi` of shape (K, m, m), groups and costs."""
    result: dict[str, Any] = {"description": config.to_dict(), "groups": groups}
    counted = counted_clients(config.clients, config.poisoned)
    for entry in ENTRIES:
        result |= _test_scores(lines, entry, counted)
    validation, last = _validation_scores(lines, counted)
    if validation:
        result |= {"validation": validation, "validation_last": last}
    if xi is not None and groups is not None:
        result["recovery"] = [round(float(value), 3) for value in recovery(xi, groups)]
        if keeps_weights and config.seed == 0 and not validation:  # what a figure shows
            result["xi"] = {str(k): [[round(float(v), 4) for v in row] for row in xi[k - 1]] for k in _shown(len(xi))}
    result["warnings"] = list(dict.fromkeys(event for line in lines for event in line["events"]))
    result["seconds"] = round(sum(line["seconds"] for line in lines), 1)
    played = [line for line in lines if "bytes" in line]
    result["round_seconds"] = [round(line["seconds"], 3) for line in played]
    if played:
        result["client_bytes"] = {way: _a_client(played, way) for way in ("up", "down")}
    return result


def _a_client(played: Sequence[Mapping[str, Any]], way: str) -> int:
    """Return how many bytes travel one way, for a client that is present, in a round: the mean over the rounds."""
    return round(sum(line["bytes"][way] / sum(line["present"]) for line in played) / len(played))


def _test_scores(lines: Sequence[Mapping[str, Any]], entry: str, counted: Sequence[bool]) -> dict[str, Any]:
    """Return the test accuracies of one of a run's two models, in percent; nothing where there is no such model."""
    table = score_table(lines, entry)
    if not len(table):
        return {}
    summary = summarise(table, counted=counted)
    scores = {
        "best": round(summary.best, 3),
        "best_round": summary.best_round,
        "last": round(summary.last, 3),
        "per_client": [round(value, 1) for value in summary.per_client],
        "curve": [round(mean, 2) for mean in mean_accuracies(table, counted)],
    }
    return {entry: scores}


def mean_accuracies(table: NDArray[np.float64], counted: Sequence[bool]) -> list[float]:
    """Return the mean accuracy after each round, in percent, over the clients that are counted."""
    # Row by row: numpy sums a whole table in another order, and between equally good rounds the last digit decides.
    return [100 * float(client_means(row[None], counted)[0]) for row in table]


def _validation_scores(
    lines: Sequence[Mapping[str, Any]], counted: Sequence[bool]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the best mean validation accuracy of each of a run's models, in percent, and the last."""
    scored = [entry for entry in ENTRIES if any(entry in line.get("validation", {}) for line in lines)]
    tables = {entry: score_table(lines, entry, on="validation") for entry in scored}
    found = {entry: summarise(table, counted=counted) for entry, table in tables.items()}
    best, last = (
        {entry: round(getattr(each, which), 3) for entry, each in found.items()} for which in ("best", "last")
    )
    return best, last


def _shown(rounds: int) -> list[int]:
    """Return the rounds whose weights are kept: the last, and one on the way."""
    return sorted({min(10, rounds), rounds})


def surroundings() -> dict[str, Any]:
    """Return what a result depends on besides its configuration: the device, and the versions."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {platform.machine()}"
    return {"device": device, "torch": torch.__version__, "fedamp": fedamp.__version__}
