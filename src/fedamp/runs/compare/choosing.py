"""Which points of a grid are shown: those that validation chose, never test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedamp.files import write_whole
from fedamp.methods import METHODS
from fedamp.records.reading import CHOSEN, RunRecord, read_runs
from fedamp.records.summaries import counted_clients, higher_is_better, score_table, summarise
from fedamp.runs.compare.planning import Planned


def validation_score(record: RunRecord, metric: str) -> float:
    """Return the best mean validation score over the rounds: what a grid is chosen by. Higher is better."""
    scored = METHODS[record.config["method"]["name"]].scored
    table = score_table(record.lines, scored, metric, on="validation")
    best = summarise(table, metric, counted_clients(table.shape[1], record.config["poisoned"])).best
    return best if higher_is_better(metric) else -best


def settle(runs: Sequence[Planned], folder: Path) -> list[RunRecord]:
    """Return what a comparison shows, and write down which points of a grid were chosen."""
    names = {run.name for run in runs}
    everything = read_runs(folder, everything=True)
    ended = [record for record in everything if record.finished]
    shown = choose(ended)  # of all that was ever compared here: a later command may add a method, or a point
    if len(shown) < len(ended):
        write_whole(folder / CHOSEN, json.dumps({"runs": [record.path.name for record in shown]}).encode())
    return choose([record for record in everything if record.path.name in names])


def choose(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records of each method's best point of the grid, by validation, the mean over seeds."""
    points: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        method = record.config["method"]
        points.setdefault((method["name"], json.dumps(method, sort_keys=True)), []).append(record)
    best: dict[str, tuple[float, list[RunRecord]]] = {}
    for (name, _), mine in points.items():
        alone = sum(1 for other, _ in points if other == name) == 1
        metric = (mine[0].result or {}).get("metric", "accuracy")
        score = 0.0 if alone else float(np.mean([validation_score(record, metric) for record in mine]))
        if name not in best or score > best[name][0]:
            best[name] = (score, mine)
    return [record for _, mine in best.values() for record in mine]
