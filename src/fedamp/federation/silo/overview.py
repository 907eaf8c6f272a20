"""A silo in numbers, from the files in its own bundle: what `fedamp silo status --json` prints.

Nothing here is about another silo: a bundle holds nothing about them. Scores are on the silo's own samples: accuracies
from 0 to 1, or errors (RMSE) in the target's unit. Moments have their time zone. What is not known is null.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from fedamp.config.metrics import metric_name
from fedamp.federation.moments import seconds_of
from fedamp.federation.plan_files import read_silo_config
from fedamp.federation.processes import locks
from fedamp.federation.silo import diary
from fedamp.federation.silo.privacy_ledger import PrivacyLedger
from fedamp.federation.silo.privacy_words import in_numbers, status_text
from fedamp.files import read_json

RECENT = 5
PAUSE, LATE = 60.0, 5  # seconds, and times that a round takes, after which the next one is not on its way
RUN = "run"


def overview(bundle: Path) -> dict[str, Any]:
    """Return a silo in numbers; its keys stay as they are."""
    config = read_silo_config(bundle)
    run = bundle / RUN
    lines, refusals = diary.rounds(run), diary.refusals(run)
    trained = [line for line in lines if not line.get("ended")]
    last = lines[-1] if lines else {}
    pid, connection = locks.holder(run / "up.lock"), read_json(run / diary.CONNECTION) or {}
    training = [line["train_seconds"] for line in trained[-RECENT:] if line.get("train_seconds") is not None]
    pace, k = _pace(trained), trained[-1]["round"] if trained else 0
    privacy = _privacy(run)
    spent = privacy is not None and privacy["rounds_left"] == 0
    playing = (
        pid is not None
        and connection.get("state") == "connected"
        and not spent
        and not last.get("ended")
        and _recent(trained, pace)
    )
    # The server may have been given more rounds than this bundle knows of.
    rounds = config.plan.config.rounds if k <= config.plan.config.rounds else None
    return {
        "silo": config.name,
        "federation": config.plan.name,
        "server": config.server,
        "method": config.plan.config.method.name,
        "up": pid is not None,
        "process": pid,
        "connection": connection.get("state", "connecting") if pid is not None else "not running",
        "connection_since": connection.get("since") if pid is not None else None,
        "connection_reason": (connection.get("reason") or None) if pid is not None else None,
        "round": k,
        "rounds": rounds,
        "ended": bool(last.get("ended")),
        "last_round": last.get("time"),
        "round_seconds": pace,
        "seconds_left": None if pace is None or rounds is None or not playing else pace * (rounds - k),
        "train_seconds": median(training) if training else None,
        "samples": last.get("samples", {}),
        "metric": metric_name(config.plan.config.metric, config.plan.schema.task),
        "scores": _scores(lines),
        "models_folder": str((run / "models").absolute()),
        "models": models(run / "models"),
        "privacy": privacy,
        "refused": refusals[-1]["number"] if refusals else 0,
        "refusals": refusals,
    }


def _privacy(run: Path) -> dict[str, Any] | None:
    """Return what is promised about samples, spent and left, without the rounds; None if nothing is promised."""
    account = PrivacyLedger(run).promised()
    if account is None:
        return None
    numbers = in_numbers(account)
    return {name: value for name, value in numbers.items() if name not in ("rounds", "events")} | {
        "words": status_text(account)
    }


def _pace(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the seconds from one round's end to the next one's, the median of the last ones."""
    ends = [(line["round"], seconds_of(line.get("time"))) for line in lines[-RECENT - 1 :]]
    pairs = [(a, b) for (i, a), (j, b) in pairwise(ends) if j == i + 1 and a is not None and b is not None]
    pace = median(max(0.0, b - a) for a, b in pairs) if pairs else 0.0
    return pace or None  # 0: moments in whole seconds, as they were written before, do not tell


def _recent(lines: Sequence[Mapping[str, Any]], pace: float | None) -> bool:
    """Return whether rounds follow each other: a silo is not told that its federation waits, or goes on without it."""
    end = seconds_of(lines[-1].get("time")) if lines else None
    return end is not None and pace is not None and time.time() - end < max(PAUSE, LATE * pace)


def _scores(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Return the newest scores of each of the silo's models, on test and on validation samples."""
    found: dict[str, dict[str, float | None]] = {}
    for line in lines:
        for entry in line.get("test", {}):
            found[entry] = {on: line.get(on, {}).get(entry) for on in ("test", "validation")}
    return found


def models(folder: Path) -> list[dict[str, Any]]:
    """Return the models that the silo can use, as the files beside them describe them."""
    found = []
    for path in sorted(folder.glob("*.json")):
        score = (read_json(path) or {}).get("score") or {}
        known = {key: score.get(key) for key in ("round", "test", "validation")}
        found.append({"name": path.stem, "file": f"{path.stem}.safetensors", **known})
    return found
