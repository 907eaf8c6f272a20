"""Run what is missing of a table, and keep what came of it in results/.

    python paper/run.py table3-emnist --data-dir DIR

Runs that were broken off go on. `--minutes` ends in time: what is not done then is done by the next call.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import fedamp
from experiments import NAMES, Cell, table
from fedamp.assembly import assemble
from fedamp.experiment import play
from fedamp.metrics import score_table, summarise
from fedamp.reading import DESCRIPTION, RunRecord, read_run
from fedamp.records import RunFolder
from fedamp.report.figures import recovery


class EnoughError(KeyboardInterrupt):
    """A run that need not go on: ends it as Ctrl-C does, with all rounds so far on record."""


class LaterError(KeyboardInterrupt):
    """No time left: the next call goes on."""


def play_cell(cell: Cell, folder: Path, data_dir: Path | None, how: Mapping[str, Any], deadline: float) -> None:
    """Run one cell to its end, and write its result."""
    description = replace(cell.description, **how)
    lines = list(read_run(folder).lines) if (folder / DESCRIPTION).exists() else []

    def watch(line: Mapping[str, Any]) -> None:
        lines.append(dict(line))
        if time.monotonic() > deadline:
            raise LaterError
        if cell.patience is not None and _no_better(lines, cell.patience):
            raise EnoughError

    stopped = None
    try:
        play(description, assemble(description, data_dir=data_dir), RunFolder(folder), watch)
    except EnoughError:
        stopped = f"{cell.patience} rounds brought no better mean"
    cell.path.parent.mkdir(parents=True, exist_ok=True)
    told = {"stopped": stopped, **distil(read_run(folder)), **surroundings()}
    told["command"] = f"python paper/run.py {cell.table} --only {cell.label}"
    cell.path.write_text(json.dumps(told, indent=1) + "\n")


def _no_better(lines: list[dict[str, Any]], patience: int) -> bool:
    """Return whether the last rounds brought no better mean than the rounds before them."""
    means = score_table(lines, "own", "accuracy").mean(1) if len(lines) > 1 else []
    return len(means) > patience and max(means[:-patience]) >= max(means[-patience:])


def distil(record: RunRecord) -> dict[str, Any]:
    """Return what a page needs of a run: scores of both kinds of models, weights, groups; small enough to be kept."""
    result = record.result or {}
    told: dict[str, Any] = {"description": record.description, "groups": result["facts"]["groups"]}
    for entry in ("own", "received"):
        scores = score_table(record.lines, entry, "accuracy")
        if len(scores):
            summary = summarise(scores, "accuracy")
            told[entry] = {
                "best": round(summary.best, 3),
                "best_round": summary.best_round,
                "last": round(summary.last, 3),
                "per_client": [round(value, 1) for value in summary.per_client],
                "curve": [round(100 * float(row.mean()), 2) for row in scores],
            }
    checked = {
        entry: round(100 * float(score_table(record.lines, entry, "accuracy", on="validation").mean(1).max()), 3)
        for entry in ("own", "received")
        if any(entry in line.get("validation", {}) for line in record.lines)
    }
    if checked:
        told["validation"] = checked
    xi = record.xi()
    if xi is not None and told["groups"] is not None:
        told["recovery"] = [round(float(value), 3) for value in recovery(xi, told["groups"])]
        told["xi"] = {str(k): [[round(float(v), 4) for v in row] for row in xi[k - 1]] for k in _shown(len(xi))}
    told["warnings"] = result.get("warnings", [])
    told["seconds"] = round(sum(line["seconds"] for line in record.lines), 1)
    return told


def _shown(rounds: int) -> list[int]:
    """Return the rounds whose weights are kept: the last, and one on the way."""
    return sorted({min(10, rounds), rounds})


def surroundings() -> dict[str, Any]:
    """Return what a figure depends on besides its description."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {platform.machine()}"
    return {"device": device, "torch": torch.__version__, "fedamp": fedamp.__version__}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=NAMES)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", help="labels that begin so")
    parser.add_argument("--runs", type=Path, default=Path("runs/paper"), help="where runs are kept while they go on")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", default="auto")
    asked = parser.parse_args()
    deadline = time.monotonic() + 60 * asked.minutes
    how = {"precision": asked.precision, "compile": asked.compile}
    cells = [cell for cell in table(asked.table) if not asked.only or cell.label.startswith(asked.only)]
    for cell in cells:
        if cell.path.exists():
            continue
        clock = time.monotonic()
        try:
            play_cell(cell, asked.runs / cell.table / cell.label, asked.data_dir, how, deadline)
        except LaterError:
            print(f"{cell.label}: goes on with the next call", flush=True)
            return
        told = json.loads(cell.path.read_text())
        scores = ", ".join(f"{entry} {told[entry]['best']:.2f}" for entry in ("own", "received") if entry in told)
        print(f"{cell.table} {cell.label}: {scores} in {time.monotonic() - clock:.0f} s", flush=True)


if __name__ == "__main__":
    main()
