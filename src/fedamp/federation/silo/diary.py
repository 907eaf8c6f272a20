"""What a silo writes down about itself for programs to read: `fedamp silo status` and `fedamp silo watch` do.

rounds.jsonl     a line for each round, in order: the silo's own scores and counts. A round that is played again takes
                 the place of what was there, and of all that came after it
refusals.jsonl   when the silo did not take part, what the server was told, and what stays here; the last hundred,
                 numbered from the first one ever
connection.json  whether the silo is connected, and since when

Nothing here leaves the silo, and nothing here is about another one. A full disk must not end a round.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedamp.errors import UserError
from fedamp.federation.moments import now
from fedamp.files import write_json, write_whole
from fedamp.records.reading import read_lines
from fedamp.records.summaries import finite

ROUNDS, REFUSALS, CONNECTION = "rounds.jsonl", "refusals.jsonl", "connection.json"
KEPT = 100
"""Refusals that are kept."""


def note_round(folder: Path, k: int, metric: str, metrics: Mapping[str, float], ended: bool = False) -> None:
    """Write down a silo's own scores of round k; `ended` if they are of what came after the last round."""
    scores = {
        on: {
            entry: finite(float(metrics[name]))
            for name in metrics
            if name.startswith(f"{on}.") and name.endswith(f".{metric}") and (entry := name.split(".")[1])
        }
        for on in ("test", "validation")
    }
    counts = {"train": "num-examples", "test": "num-test", "validation": "num-validation"}
    line = {
        "round": k,
        "time": now(),
        "ended": ended,
        "metric": metric,
        **{on: by for on, by in scores.items() if by},
        "samples": {on: int(metrics[name]) for on, name in counts.items() if name in metrics},
        "train_seconds": finite(metrics.get("train-seconds")),
    }
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        before = [each for each in rounds(folder) if each["round"] < k]
        write_whole(folder / ROUNDS, "".join(json.dumps(each) + "\n" for each in [*before, line]).encode())


def note_refusal(folder: Path, public: str, private: str) -> None:
    """Write down that the silo did not take part: what the server was told, and the reason that stays here."""
    reason = private.strip().splitlines()[-1] if private.strip() else ""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        before = refusals(folder)
        number = before[-1]["number"] + 1 if before else 1
        lines = [*before, {"number": number, "time": now(), "told": public, "reason": reason}][-KEPT:]
        write_whole(folder / REFUSALS, "".join(json.dumps(each) + "\n" for each in lines).encode())


def note_connection(folder: Path, state: str, reason: str = "") -> None:
    """Write down the state of the silo's connection."""
    with contextlib.suppress(OSError):
        write_json(folder / CONNECTION, {"state": state, "since": now(), "reason": reason})


def rounds(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the rounds so far."""
    try:
        return read_lines(folder / ROUNDS)
    except UserError:  # not there yet, or damaged: scores of earlier rounds are no reason to stop
        return []


def refusals(folder: Path) -> list[dict[str, Any]]:
    """Return the refusals that are kept, the oldest first."""
    try:
        texts = (folder / REFUSALS).read_text(encoding="utf-8").splitlines()
        return [json.loads(text) for text in texts]
    except (OSError, ValueError):
        return []
