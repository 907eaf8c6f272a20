"""Reading run folders, without torch: the names of their files, and a run as its files describe it."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.errors import UserError
from fedamp.files import read_json
from fedamp.records.facts import Facts

DESCRIPTION, LINES, RESULT = "description.json", "rounds.jsonl", "result.json"
MODELS, BEST, XI, SCHEMA = "models.safetensors", "best.safetensors", "xi.safetensors", "schema.json"
INPUTS, STATE = "inputs.json", "state.safetensors"
CHECKPOINTS = "checkpoint-*.safetensors"
SHOWN = 12
"""Runs that an error lists."""


@dataclass(frozen=True)
class RunRecord:
    """A run as its folder describes it; see `fedamp.records.folder` for what is in which file."""

    path: Path
    config: dict[str, Any]  # as `RunConfig.to_dict` gives it
    lines: list[dict[str, Any]]  # one for each round
    result: dict[str, Any] | None  # None if the run was killed before it could write one
    # Digests of samples and model, to tell apart what has the same name; they are never shown.
    data_digest: str | None = None
    model_digest: str | None = None
    # Of a comparison with a grid: what validation chose for it, and of how many points.
    tuned: Mapping[str, Any] = field(default_factory=dict)
    tried: int = 1

    @property
    def finished(self) -> bool:
        """Whether all rounds were played."""
        return self.result is not None and bool(self.result.get("finished"))

    @property
    def facts(self) -> Facts:
        """What the run noted about its data and model; nothing is known about one without a result."""
        return Facts.of((self.result or {}).get("facts") or {})

    def xi(self) -> NDArray[np.float32] | None:
        """Return the collaboration weights of each round `(K, m, m)`, for methods that have them.

        Of a run that is under way, they are those of its newest checkpoint.
        """
        from safetensors.numpy import load_file

        try:
            weights: NDArray[np.float32] = load_file(self.path / XI)["xi"]
        except FileNotFoundError:
            return _xi_so_far(self.path)
        except Exception as error:  # safetensors raises a different exception for every kind of damage
            raise UserError(f"{self.path / XI} can't be read ({error}); the folder is damaged") from None
        return weights


def _xi_so_far(folder: Path) -> NDArray[np.float32] | None:
    """Return the collaboration weights in the newest checkpoint that can be read, without the models in it."""
    from safetensors import SafetensorError, safe_open

    for path in sorted(folder.glob(CHECKPOINTS), reverse=True):
        # A run that is under way may delete it at this very moment.
        with contextlib.suppress(OSError, SafetensorError), safe_open(path, framework="numpy") as file:
            if "xi" not in file.keys():  # noqa: SIM118 (it is not a dict)
                return None
            weights: NDArray[np.float32] = file.get_tensor("xi")
            return weights
    return None


def read_run(path: Path) -> RunRecord:
    """Return the run in a folder; a folder without one is an error."""
    config = read_json(path / DESCRIPTION)
    if config is None and path.is_file():
        raise UserError(f"{path} is a file; expected the folder of a run")
    if config is None and not path.is_dir():
        raise UserError(f"there is no folder {path}; expected the folder of a run")
    if config is None:
        below = sorted(inner.parent.name for inner in path.glob(f"*/{DESCRIPTION}"))
        more = f" and {len(below) - SHOWN} more" if len(below) > SHOWN else ""
        hint = f"; give one of the runs below it: {', '.join(below[:SHOWN])}{more}" if below else ""
        raise UserError(f"{path} holds no run: it has no {DESCRIPTION}{hint}")
    inputs = read_json(path / INPUTS) or {}
    return RunRecord(
        path=path,
        config=config,
        lines=_in_order(read_lines(path / LINES), path / LINES),
        result=read_json(path / RESULT),
        data_digest=inputs.get("data"),
        model_digest=inputs.get("code"),
    )


def _in_order(lines: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """Return the lines if each is of the round after the last one's: two processes may have written to one record."""
    for before, line in itertools.pairwise(lines):
        if line["round"] != before["round"] + 1:
            raise UserError(
                f"{path} has round {line['round']} after round {before['round']}; the folder is damaged, as it was by "
                "two processes that wrote to it at once under earlier versions: remove it, and play the run again"
            )
    return lines


CHOSEN = "chosen.json"
"""Of a comparison with a grid: the runs at the points that validation chose. Only these are shown."""


def read_runs(folder: Path, everything: bool = False) -> list[RunRecord]:
    """Return the run in a folder, or the runs in the folders right below it, by name.

    If a grid was tried, these are the ones that validation chose, unless `everything` is asked for: to show the
    best of all by test would be to choose by test.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; expected the folder of a run or a comparison")
    if (folder / DESCRIPTION).exists():
        return [read_run(folder)]
    runs = [read_run(path.parent) for path in sorted(folder.glob(f"*/{DESCRIPTION}"))]
    chosen = None if everything else read_json(folder / CHOSEN)
    if chosen is not None:
        points = chosen.get("points", {})  # older comparisons have none
        runs = [
            replace(run, **points.get(run.path.name, {})) for run in runs if run.path.name in chosen.get("runs", [])
        ]
    if not runs:
        raise UserError(f"{folder} holds no run; expected a {DESCRIPTION} in it or in a folder right below it")
    return runs


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rounds' lines; a last line that was cut off by a crash is left out."""
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} can't be read ({error}); the folder is damaged") from None
    lines = []
    for text in texts:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            break
        if not isinstance(line, dict) or not isinstance(line.get("round"), int):
            raise UserError(f"{path} has a line that is not a round ({text[:60]}); the folder is damaged")
        lines.append(line)
    return lines
