"""Which points of a grid are shown: those that validation chose, never test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedamp.files import write_whole
from fedamp.methods import METHODS
from fedamp.records.differences import differing_keys, flat
from fedamp.records.reading import CHOSEN, RunRecord, read_runs
from fedamp.records.summaries import counted_clients, higher_is_better, score_table, summarise
from fedamp.runs.compare.grid import is_tuned
from fedamp.runs.compare.planning import Planned

Points = Mapping[str, list[RunRecord]]
"""The runs of one method on one problem, over seeds, by the point that they are at."""


def validation_score(record: RunRecord, metric: str) -> float:
    """Return the best mean validation score over the rounds: what a grid is chosen by. Higher is better."""
    scored = (record.result or {}).get("scored") or METHODS[record.config["method"]["name"]].scored
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
        points = {record.path.name: {"tuned": record.tuned, "tried": record.tried} for record in shown}
        write_whole(folder / CHOSEN, json.dumps({"runs": list(points), "points": points}).encode())
    return choose([record for record in everything if record.path.name in names])


def choose(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records of each method's best point of the grid on each problem, with what was chosen."""
    problems: dict[tuple[str, str], dict[str, list[RunRecord]]] = {}
    for record in records:
        told = {key: value for key, value in flat(record.config).items() if key != "seed"}
        problem = json.dumps({key: value for key, value in told.items() if not is_tuned(key)}, sort_keys=True)
        point = json.dumps({key: value for key, value in told.items() if is_tuned(key)}, sort_keys=True)
        points = problems.setdefault((record.config["method"]["name"], problem), {})
        points.setdefault(point, []).append(record)
    return [record for points in problems.values() for record in _best(points)]


def _best(points: Points) -> list[RunRecord]:
    """Return the runs at the best point by validation, the mean over the seeds that all points have."""
    if len(points) == 1:
        return next(iter(points.values()))
    common = set.intersection(*({record.config["seed"] for record in mine} for mine in points.values()))
    scores = {point: _mean_score(mine, common) for point, mine in points.items()}
    best = max(scores, key=lambda point: scores[point])
    told = {point: json.loads(point) for point in points}
    keys = [key for key in differing_keys(list(told.values())) if key != "model_code"]
    tuned = {key.removesuffix(".name").removeprefix("method."): told[best].get(key) for key in keys}
    return [replace(record, tuned=tuned, tried=len(points)) for record in points[best]]


def _mean_score(records: Sequence[RunRecord], seeds: set[int]) -> float:
    """Return the mean validation score over these seeds, or over all if there is no seed that all points have."""
    metric = (records[0].result or {}).get("metric", "accuracy")
    mine = [record for record in records if record.config["seed"] in seeds] or records
    mean = float(np.mean([validation_score(record, metric) for record in mine]))
    return -np.inf if np.isnan(mean) else mean
