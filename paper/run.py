"""Run what is missing of some tables, and keep what came of it in results/.

    python paper/run.py table3-emnist --data-dir DIR

The same command may run several times at once on one machine: each takes what no other has taken. With `--runs DIR`
a run that was broken off goes on where it was; without, it begins anew, and its models are nowhere written.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

import fedamp
from experiments import NAMES, WATCHED, Cell, table
from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.records.folder import RunFolder
from fedamp.records.metrics import counted_clients, finite, score_table, summarise
from fedamp.records.reading import DESCRIPTION, read_run
from fedamp.report.figures import recovery
from fedamp.runs.identity import inputs_of
from fedamp.runs.loop import play
from fedamp.runs.material import Material, load_material
from fedamp.runs.setup import Setup, assemble
from fedamp.training.stacked.chunks import ALL_AT_ONCE
from fedamp.training.trainer import Trainer

INTERRUPTED = 130  # what a shell says of Ctrl-C

LONG = 600
"""Rounds from which what there is is kept when the time is over: nobody runs them twice for that."""


class LaterError(KeyboardInterrupt):
    """No time left: another call does it."""


@dataclass
class Runner:
    """How cells are run: where data and unfinished runs are, until when, and what is reused from run to run."""

    data_dir: Path | None = None
    runs: Path | None = None
    how: Mapping[str, Any] = field(default_factory=dict)  # changes to every description
    deadline: float = float("inf")
    passes: dict[Any, Trainer] = field(default_factory=dict)

    def play(self, cell: Cell) -> None:
        """Run one cell to its end, and write its result."""
        config = replace(cell.config, **self.how)
        material = load_material(config, self.data_dir)
        setup = self._ready(config, material)
        note = setup.facts.get("note")
        self._same_data(cell, note)
        folder = None if self.runs is None else self.runs / cell.table / cell.label
        stopped: str | None = None
        lines = list(read_run(folder).lines) if folder is not None and (folder / DESCRIPTION).exists() else []

        counted = counted_clients(config.clients, config.poisoned)

        def watch(line: Mapping[str, Any]) -> bool:
            lines[:] = [*(before for before in lines if before["round"] < line["round"]), dict(line)]
            nonlocal stopped
            if stopped is not None or line["round"] >= config.rounds:  # nothing left to be spared
                return True
            entries = WATCHED.get(config.method.name, ("own",))
            if cell.patience is not None and all(_no_better(lines, entry, cell.patience, counted) for entry in entries):
                stopped = f"{cell.patience} rounds brought no better mean"
            elif time.monotonic() > self.deadline and line["round"] > 0:
                if config.rounds < LONG:
                    raise LaterError  # half of a short run is no result
                stopped = "the time for it was over"
            return stopped is None

        target = None if folder is None else RunFolder(folder, inputs_of(config, material))
        result = play(config, setup, target, watch)
        xi = None if result.xi is None else result.xi.numpy()
        told = {
            "stopped": stopped,
            "data": note,
            **distil(config, lines, setup.facts["groups"], xi),
            **surroundings(),
        }
        told["command"] = command(cell, config)
        cell.path.parent.mkdir(parents=True, exist_ok=True)
        cell.path.write_text(as_text(told))
        if folder is not None:
            shutil.rmtree(folder)

    @staticmethod
    def _same_data(cell: Cell, note: str | None) -> None:
        """Raise where the results beside this one are of other data: EMNIST's test split alone, say, or all of it."""
        for path in cell.path.parent.glob("*.json"):
            if (theirs := json.loads(path.read_text())["data"]) != note:
                raise UserError(
                    f"the data of {cell.label} is {note!r}, but {path} has {theirs!r}; one table needs one kind of "
                    f"data: take the other's files, or move {path.parent} away"
                )

    def _ready(self, config: RunConfig, material: Material) -> Setup:
        """Return all that a run needs, with the passes that earlier runs of the same model compiled and recorded."""
        setup = assemble(config, material)
        training = setup.trainer
        if training.config.engine == "stacked":
            training = training.changed(chunk=ALL_AT_ONCE)  # too many for the memory are halved
        kind = (config.model, repr(training.model.module), training.config.precision, config.compile)
        earlier = self.passes.setdefault(repr(kind), training)
        if earlier is not training:
            training = training.reusing(earlier)
        return replace(setup, training=training)


def _means(lines: Sequence[Mapping[str, Any]], entry: str, counted: Sequence[bool], on: str = "test") -> list[float]:
    """Return the mean accuracy after each round, in percent, over the clients that are counted."""
    return [100 * float(row[list(counted)].mean()) for row in score_table(lines, entry, "accuracy", on)]


def _no_better(lines: Sequence[Mapping[str, Any]], entry: str, patience: int, counted: Sequence[bool]) -> bool:
    """Return whether the last rounds brought no better mean than the rounds before them."""
    means = _means(lines, entry, counted)
    return len(means) > patience and max(means[:-patience]) >= max(means[-patience:])


def distil(
    config: RunConfig, lines: Sequence[Mapping[str, Any]], groups: Sequence[int] | None, xi: NDArray[Any] | None
) -> dict[str, Any]:
    """Return what a page needs of a run: scores of both kinds of models, weights, groups; small enough to be kept."""
    told: dict[str, Any] = {"description": config.to_dict(), "groups": groups}
    counted = counted_clients(config.clients, config.poisoned)
    for entry in ("own", "received"):
        scores = score_table(lines, entry, "accuracy")
        if len(scores):
            summary = summarise(scores, "accuracy", counted)
            told[entry] = {
                "best": round(summary.best, 3),
                "best_round": summary.best_round,
                "last": round(summary.last, 3),
                "per_client": [round(value, 1) for value in summary.per_client],
                "curve": [round(mean, 2) for mean in _means(lines, entry, counted)],
            }
    checked = {
        entry: round(max(_means(lines, entry, counted, on="validation")), 3)
        for entry in ("own", "received")
        if any(entry in line.get("validation", {}) for line in lines)
    }
    if checked:
        told["validation"] = checked
    if xi is not None and groups is not None:
        told["recovery"] = [round(float(value), 3) for value in recovery(xi, groups)]
        if config.seed == 0 and not checked:  # what a figure shows
            told["xi"] = {str(k): [[round(float(v), 4) for v in row] for row in xi[k - 1]] for k in _shown(len(xi))}
    told["warnings"] = list(dict.fromkeys(event for line in lines for event in line["events"]))
    told["seconds"] = round(sum(line["seconds"] for line in lines), 1)
    return told


def as_text(told: Mapping[str, Any]) -> str:
    """Return JSON with a line for each entry: small, and readable as a change; null for what is not finite."""
    lines = (f" {json.dumps(name)}: {json.dumps(finite(value), allow_nan=False)}" for name, value in told.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _shown(rounds: int) -> list[int]:
    """Return the rounds whose weights are kept: the last, and one on the way."""
    return sorted({min(10, rounds), rounds})


def surroundings() -> dict[str, Any]:
    """Return what a figure depends on besides its description."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {platform.machine()}"
    return {"device": device, "torch": torch.__version__, "fedamp": fedamp.__version__}


def command(cell: Cell, config: RunConfig) -> str:
    """Return the command that runs a cell."""
    how = f"--precision {config.precision} --compile {config.compile}"
    return f"python paper/run.py {cell.table} --only {cell.label} {how}"


@contextlib.contextmanager
def claimed(cell: Cell) -> Iterator[bool]:
    """Hold a cell, where no other process on this machine does: a lock that goes with the process."""
    name = hashlib.sha256(str(cell.path.resolve()).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"fedamp-{os.getuid()}-{name}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield not cell.path.exists()


def missing(tables: Sequence[str], only: str = "") -> list[Cell]:
    """Return the cells that have no result yet and wait for no tuning, in order."""
    cells = [cell for name in tables for cell in table(name)]
    return [cell for cell in cells if cell.label.startswith(tuple(only.split(","))) and not cell.path.exists()]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=NAMES, metavar="TABLE", help=", ".join(NAMES))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", default="", help="labels that begin so, with commas between")
    parser.add_argument("--runs", type=Path, help="where runs are kept while they go on")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="end then; only of 600 rounds is a part kept"
    )
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", default="auto")
    asked = parser.parse_args()
    how = {"precision": asked.precision, "compile": asked.compile}
    runner = Runner(asked.data_dir, asked.runs, how, time.monotonic() + 60 * asked.minutes)
    held: set[Path] = set()  # by other processes
    while time.monotonic() < runner.deadline:
        # Looked up anew each time: others run too, and what is tuned decides what comes after it.
        cells = missing(asked.tables, asked.only)
        cell = next((cell for cell in cells if cell.path not in held), None)
        if cell is None and not cells:
            break
        if cell is None:  # others are at it, and something may come after theirs
            time.sleep(5)
            held.clear()
            continue
        with claimed(cell) as mine:
            if not mine:
                held.add(cell.path)
                continue
            clock = time.monotonic()
            try:
                runner.play(cell)
            except LaterError:
                break
            except UserError as error:  # data that is not there, a precision that does not exist
                parser.error(str(error))
            told = json.loads(cell.path.read_text())
            scores = ", ".join(f"{of} {told[of]['best']:.2f}" for of in ("own", "received") if of in told)
            took = f"{time.monotonic() - clock:.0f} s, {told['seconds']:.0f} of them in rounds"
            print(f"{cell.table} {cell.label}: {scores} in {took}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on with what is missing", file=sys.stderr)
        sys.exit(INTERRUPTED)
