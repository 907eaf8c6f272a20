"""A federation in numbers, from the files that its server writes anyway: what `fedamp federation status --json` prints.

It works whether the federation runs or not. Scores are those of the models that count, on each silo's test samples:
accuracies from 0 to 1, errors (RMSE) in the target's unit, or what the plan's metric gives. Moments have their time
zone. What is not known is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fedamp.config.metrics import metric_name
from fedamp.federation.plan import Federation
from fedamp.federation.plan_files import read_federation
from fedamp.federation.server.commands import status
from fedamp.records.reading import DESCRIPTION, LINES, RunRecord, read_run
from fedamp.records.summaries import finite, higher_is_better
from fedamp.report.run_scores import Trial, read_trial

RECENT = 5
"""Rounds by which it is guessed how long the next ones take."""
SILO = ("name", "number", "state", "since", "seen", "samples", "strikes", "refused", "reason", "withholds")
"""What is known about a silo besides its score; see docs/deploy.md."""


@dataclass(frozen=True)
class Seen:
    """A federation as its files describe it at one moment."""

    federation: Federation
    pid: int | None  # the process of `up`
    said: Mapping[str, Any]  # status.json
    run: RunRecord | None  # None until the server has begun
    trial: Trial | None  # None until a round has been scored

    @property
    def names(self) -> list[str]:
        """The silos' names, in the order of the record's lists."""
        return [member.name for member in self.federation.members]


def see(folder: Path) -> Seen:
    """Read a federation's files."""
    federation = read_federation(folder)
    pid, said = status(folder)
    record = folder / "record"
    if not ((record / DESCRIPTION).exists() and (record / LINES).exists()):
        return Seen(federation, pid, said, None, None)
    run = read_run(record)
    names = [member.name for member in federation.members]
    # A run notes such facts when it ends. Silos that were just added have no place in the record until a restart.
    if run.result is None and run.config.get("clients") == len(names):
        run = replace(run, result={"facts": {"names": names}})
    return Seen(federation, pid, said, run, read_trial(run))


def overview(seen: Seen) -> dict[str, Any]:
    """Return a federation in numbers; its keys stay as they are."""
    said, rounds = seen.said, seen.federation.plan.config.rounds
    k = int(said.get("round", 0))
    recent = [line["seconds"] for line in played(seen.run)[-RECENT:]]
    pace = median(recent) if recent else None
    silos = [_silo(seen, place) for place in range(len(seen.names))]
    plan = seen.federation.plan
    metric = metric_name(plan.config.metric, plan.schema.task) if seen.trial is None else seen.trial.metric
    known = {silo["name"]: silo["score"] for silo in silos if silo["score"] is not None}
    worst = _worst(known, metric)
    return {
        "federation": seen.federation.plan.name,
        "method": seen.federation.plan.config.method.name,
        "up": seen.pid is not None,
        "process": seen.pid,
        "state": said.get("state", "not begun"),
        "round": k,
        "rounds": rounds,
        "updated": said.get("updated"),
        "last_round": said.get("last_round"),
        "round_seconds": pace,
        "seconds_left": _left(said.get("state"), seen.pid is not None, pace, rounds - k),
        "min_silos": seen.federation.rules.min_silos,
        "metric": metric,
        "mean": sum(known.values()) / len(known) if known else None,
        "worst": known.get(worst) if worst else None,
        "worst_silo": worst,
        "refused_replies": sum(silo["refused"] or 0 for silo in silos),
        "warnings": [] if seen.trial is None else seen.trial.warnings,
        "silos": silos,
    }


def _left(state: str | None, up: bool, pace: float | None, rounds: int) -> float | None:
    """Return the seconds that the rounds to come will take; None while nothing says when they will be played."""
    if state == "finished":
        return 0.0
    return pace * max(0, rounds) if pace is not None and up and state == "running" else None


def played(run: RunRecord | None) -> Sequence[Mapping[str, Any]]:
    """Return the lines of the rounds that were played: neither the first models' nor the last scores'."""
    return [] if run is None else [line for line in run.lines if "present" in line]


def _silo(seen: Seen, place: int) -> dict[str, Any]:
    """Return what is known about the silo at this place among the members."""
    member = seen.federation.members[place]
    said: Mapping[str, Any] = next((silo for silo in seen.said.get("silos", []) if silo.get("name") == member.name), {})
    known = {
        "state": "never came",
        "strikes": 0,
        "refused": 0,
        "withholds": False,
        **said,
        "name": member.name,
        "number": member.number,
    }
    if member.removed:  # the status says so only when the server is running again; its scores count no more
        return {**{key: known.get(key) for key in SILO}, "state": "removed", "score": None}
    return {**{key: known.get(key) for key in SILO}, "score": _score(seen.trial, place)}


def _score(trial: Trial | None, place: int) -> float | None:
    """Return a silo's last known score."""
    if trial is None or place >= trial.table.shape[1]:
        return None
    score: float | None = finite(float(trial.table[-1, place]))
    return score


def _worst(known: Mapping[str, float], metric: str) -> str | None:
    if not known:
        return None
    names = list(known)
    place = (np.argmin if higher_is_better(metric) else np.argmax)(list(known.values()))
    return names[int(place)]
