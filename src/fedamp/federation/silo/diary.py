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
from collections.abc import Iterable, Mapping, Sequence
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
_FAULTS: dict[Path, str] = {}
"""Why a silo's rounds can't be written down, as long as they can't; "" when its operator was told."""


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
        "time": now("milliseconds"),  # a round may take less than a second
        "ended": ended,
        "metric": metric,
        **{on: by for on, by in scores.items() if by},
        "samples": {on: int(metrics[name]) for on, name in counts.items() if name in metrics},
        "train_seconds": finite(metrics.get("train-seconds")),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _add(folder / ROUNDS, rounds(folder), line)
    except OSError as error:
        _FAULTS.setdefault(folder, f"{folder / ROUNDS} can't be written ({error.strerror or error})")
    else:
        _FAULTS.pop(folder, None)


def _add(path: Path, lines: Sequence[Mapping[str, Any]], line: Mapping[str, Any]) -> None:
    """Add a round's line; written anew is the file only if it does not go on from there.

    On a disk that is nearly full there is room for a line more where there is none for all of them.
    """
    known = path.read_bytes() if path.exists() else b""
    before = [each for each in lines if each["round"] < line["round"]]
    if len(before) == known.count(b"\n") and known[-1:] in (b"", b"\n"):  # nothing is replaced, nothing was cut off
        with path.open("ab") as file:
            file.write(_text([line]))
    else:
        write_whole(path, _text([*before, line]))


def _text(lines: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in lines).encode()


def new_fault(folder: Path) -> str:
    """Return why rounds can't be written down, once; "" if they can, or if it was returned before."""
    fault = _FAULTS.get(folder, "")
    if fault:
        _FAULTS[folder] = ""
    return fault


def note_refusal(folder: Path, public: str, private: str) -> None:
    """Write down that the silo did not take part: what the server was told, and the reason that stays here."""
    reason = private.strip().splitlines()[-1] if private.strip() else ""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        before = refusals(folder)
        number = before[-1]["number"] + 1 if before else 1
        lines = [*before, {"number": number, "time": now(), "told": public, "reason": reason}][-KEPT:]
        write_whole(folder / REFUSALS, _text(lines))


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
