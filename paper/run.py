"""Run what is missing of some tables, and keep the results in results/.

    python -m paper.run --list                          # what is missing, and how long it would take
    python -m paper.run table3-emnist --data-dir DIR
    python -m paper.run --data-dir DIR --minutes 25     # the paper's tables, what is worth most first

The same command may run several times at once on one machine: each process takes runs that no other has taken. With
`--runs DIR`, a run that was interrupted continues where it was. Without it, the run starts again, and no model is
written anywhere.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.records.folder import RunFolder
from fedamp.records.reading import DESCRIPTION, read_run
from fedamp.runs.identity import inputs_of
from fedamp.runs.loop import play
from fedamp.runs.material import Material, load_material
from fedamp.runs.setup import Setup, assemble
from fedamp.training.stacked.chunks import ALL_AT_ONCE
from fedamp.training.trainer import Trainer
from paper import planning, results
from paper.all_tables import NAMES
from paper.distil import ENTRIES, distil, surroundings
from paper.experiments import Cell
from paper.pending import cells_to_run
from paper.watch import Watch

INTERRUPTED = 130  # what a shell says of Ctrl-C


class OutOfTimeError(Exception):
    """No time is left for a short run: another call does it."""


@dataclass
class Runner:
    """How cells are run: where data and unfinished runs are, until when, and what is reused from run to run."""

    data_dir: Path | None = None
    runs: Path | None = None
    how: Mapping[str, Any] = field(default_factory=dict)  # changes to the configuration of every run
    deadline: float = float("inf")
    passes: dict[Any, Trainer] = field(default_factory=dict)
    last: str = ""  # the method of the last run

    def play(self, cell: Cell) -> dict[str, Any]:
        """Run one cell to its end, write its result and return it."""
        config = replace(cell.config, **self.how)
        material = load_material(config, self.data_dir)
        setup = self._ready(config, material)
        note = setup.facts.note
        self._same_data(cell, note)
        folder = None if self.runs is None else self.runs / cell.table / cell.label
        lines = list(read_run(folder).lines) if folder is not None and (folder / DESCRIPTION).exists() else []
        watch = Watch(config, cell.patience, self.deadline, lines)
        target = None if folder is None else RunFolder(folder, inputs_of(config, material))
        played = play(config, setup, target, watch)
        if watch.out_of_time:
            raise OutOfTimeError
        xi = None if played.xi is None else played.xi.numpy()
        result = {
            "stopped": watch.stopped,
            "data": note,
            **distil(config, watch.lines, setup.facts.groups, xi, keeps_weights=cell.keeps_weights),
            **surroundings(),
            "precision": setup.facts.precision,
            "command": command(cell, config),
        }
        results.write(cell.path, result)
        if folder is not None:
            shutil.rmtree(folder)
        return result

    @staticmethod
    def _same_data(cell: Cell, note: str | None) -> None:
        """Raise where this table has results on other data: on EMNIST's test split alone, say, and not on all of it."""
        for table, label, result in results.read_all(cell.table):
            if result["data"] != note:
                path = results.path_of(table, label)
                raise UserError(
                    f"the data of {cell.label} is {note!r}, but {path} was run on {result['data']!r}; one table needs "
                    f"one kind of data: use the same files as before, or move {path.parent} away"
                )

    def _ready(self, config: RunConfig, material: Material) -> Setup:
        """Return all that a run needs, with the passes that earlier runs of the same model compiled and recorded."""
        setup = assemble(config, material)
        trainer = setup.trainer
        if trainer.config.engine == "stacked":
            trainer = trainer.changed(chunk=ALL_AT_ONCE)  # too many for the memory are halved
        kind = (config.model, repr(trainer.model.module), trainer.config.precision, config.compile)
        earlier = self.passes.setdefault(repr(kind), trainer)
        if earlier is not trainer:
            trainer = trainer.reusing(earlier)
            if config.method.name != self.last:  # another method has other shapes, and there is room for a few
                trainer.gradients.graphs.clear()
        self.last = config.method.name
        return replace(setup, trainer=trainer)


def command(cell: Cell, config: RunConfig) -> str:
    """Return the command that runs a cell."""
    how = f"--precision {config.precision} --compile {config.compile}"
    return f"python -m paper.run {cell.table} --only {cell.label} {how}"


def main() -> None:
    """Run what is missing."""
    parser = _parser()
    asked = parser.parse_args()
    if asked.list:
        planned = [name for name in asked.tables or planning.NAMES if name in planning.NAMES]
        if not planned:
            parser.error(f"only the paper's tables are planned ({', '.join(planning.NAMES)})")
        print("\n".join(planning.lines(planned)))
        return
    how = {"precision": asked.precision, "compile": asked.compile}
    runner = Runner(asked.data_dir, asked.runs, how, time.monotonic() + 60 * asked.minutes)
    failed: set[Path] = set()
    worth = partial(planning.in_order, deadline=runner.deadline)
    tables, order = (asked.tables, list) if asked.tables else (planning.NAMES, worth)
    for cell in cells_to_run(tables, asked.only, runner.deadline, failed, order):
        clock = time.monotonic()
        try:
            result = runner.play(cell)
        except OutOfTimeError:
            break
        except UserError as error:  # data that is not there, a precision that does not exist
            parser.error(str(error))
        except Exception:  # our own mistake in one cell must not cost the others their time
            traceback.print_exc()
            failed.add(cell.path)
            continue
        scores = ", ".join(f"{entry} {result[entry]['best']:.2f}" for entry in ENTRIES if entry in result)
        took = f"{time.monotonic() - clock:.0f} s, {result['seconds']:.0f} of them in rounds"
        print(f"{cell.table} {cell.label}: {scores} in {took}", flush=True)
    if failed:
        sys.exit(f"{len(failed)} runs failed: {', '.join(sorted(path.stem for path in failed))}")


def _known(name: str) -> str:
    if name not in NAMES:
        raise argparse.ArgumentTypeError(f"there is no table {name!r}; choose from {', '.join(NAMES)}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paper.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=_known, metavar="TABLE", help=", ".join(NAMES))
    parser.add_argument("--list", action="store_true", help="only say what is missing, with minutes on an H200")
    parser.add_argument("--data-dir", type=Path, help="where the data sets are")
    parser.add_argument("--only", default="", help="beginnings of the labels to run, separated by commas; trials too")
    parser.add_argument("--runs", type=Path, help="where runs are kept until they are finished")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after that; only runs of 600 rounds keep a part"
    )
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", default="auto")
    return parser


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\nstopped; the same command continues with what is missing", file=sys.stderr)
        sys.exit(INTERRUPTED)
