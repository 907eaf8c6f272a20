"""The folder results/: a small JSON file for each run of a table, and one for the theorems."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedamp.records.summaries import finite

RESULTS = Path(__file__).parent.parent / "results"


def path_of(table: str, label: str) -> Path:
    """Return where the result of a run is kept."""
    return RESULTS / table / f"{label}.json"


def theorems_path() -> Path:
    """Return where the measured theorems are kept."""
    return RESULTS / "theorems.json"


def read(table: str, label: str) -> dict[str, Any] | None:
    """Return the result of a run, or None where it was not run."""
    path = path_of(table, label)
    return json.loads(path.read_text()) if path.exists() else None


def read_theorems() -> dict[str, Any]:
    """Return the measured theorems."""
    measured: dict[str, Any] = json.loads(theorems_path().read_text())
    return measured


def read_all(table: str = "*") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return table, label and result of every run of one table, or of all, in the order of their names."""
    for path in sorted(RESULTS.glob(f"{table}/*.json")):
        yield path.parent.name, path.stem, json.loads(path.read_text())


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write the result of a run: a line for each entry, so that a change can be read; null for what is not finite."""
    lines = (f" {json.dumps(name)}: {json.dumps(finite(value), allow_nan=False)}" for name, value in result.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")  # put in place whole: other processes read what is there
    part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    part.replace(path)
