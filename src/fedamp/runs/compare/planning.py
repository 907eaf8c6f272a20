"""Which runs a comparison has: methods, seeds and points of a grid; and the plan of them in its folder."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedamp import checks
from fedamp.config import Named, RunConfig
from fedamp.config.sources import parse_value
from fedamp.errors import UserError
from fedamp.files import read_json, write_json
from fedamp.methods import METHODS
from fedamp.records.differences import differences
from fedamp.records.folder import RunFolder
from fedamp.records.reading import DESCRIPTION, INPUTS, LINES, SCHEMA
from fedamp.runs.identity import data_digest
from fedamp.runs.material import load_material

PLAN = "comparison.json"


@dataclass(frozen=True)
class Planned:
    """One run of a comparison."""

    name: str  # of its folder
    config: RunConfig


def method_names(text: str) -> list[str]:
    """Return the methods of `all` or of a list like `fedamp,fedavg`; Separate is always the first.

    Without it nobody could see whether collaborating helped.
    """
    names = list(METHODS) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        checks.one_of("method", name, METHODS)
    return list(dict.fromkeys(["separate", *names]))


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values to try for each of the methods' parameters, from texts such as `method.sigma=1,10,100`."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        table, dot, name = key.strip().partition(".")
        if not (equals and dot and name and values and table == "method"):
            raise UserError(f"got --grid {text!r}; expected method.NAME=VALUE,VALUE, say method.sigma=1,10,100")
        grid[name] = [parse_value(value.strip()) for value in values.split(",")]
    known = {f.name for method in METHODS.values() for f in fields(method)}
    for name in grid:
        checks.one_of("hyperparameter", name, known)
    return grid


def overrides_for(method: str, overrides: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the `method.NAME=VALUE` that are for this method: each goes to those compared methods that have it.

    What none of them has stays, so that it is an error as in a single run.
    """
    having = {name: {f.name for f in fields(METHODS[name])} for name in names}

    def is_mine(override: str) -> bool:
        place, _, knob = override.partition("=")[0].strip().partition(".")
        elsewhere = any(knob in known for known in having.values())
        return place != "method" or knob in having[method] or not elsewhere

    return [override for override in overrides if is_mine(override)]


def plan(
    describe: Callable[[str], RunConfig], names: Sequence[str], seeds: Sequence[int], grid: Mapping[str, list[Any]]
) -> list[Planned]:
    """Return the runs of a comparison; `describe(method)` gives a method's configuration."""
    runs = []
    for name in names:
        mine = {key: values for key, values in grid.items() if key in {f.name for f in fields(METHODS[name])}}
        for values in itertools.product(*mine.values()):
            point = dict(zip(mine, values, strict=True))
            for seed in seeds:
                base = describe(name)
                choice = Named(name, {**base.method.parameters, **point})
                words = [name, *(f"{key}={value}" for key, value in point.items()), f"seed{seed}"]
                runs.append(Planned("-".join(words), replace(base, method=choice, seed=seed)))
    if any(grid.values()) and not all(run.config.validation for run in runs):
        raise UserError("a grid is chosen by validation accuracy, never by test: give --validation, say 0.2")
    return runs


def digest(runs: Sequence[Planned], data_dir: Path | None = None) -> str:
    """Return a folder name: the data, the setting, and a digest of everything that does not depend on the seeds.

    The samples count too: other data under the same name get another folder.
    """
    texts = sorted({json.dumps({**run.config.to_dict(), "seed": 0}, sort_keys=True) for run in runs})
    first = runs[0].config
    texts.append(data_digest(load_material(first, data_dir)))
    words = [Path(first.data).name, first.setting.name, first.model.name]
    return "-".join([*words, hashlib.sha256("".join(texts).encode()).hexdigest()[:8]])


def whole_plan(runs: Sequence[Planned], folder: Path) -> dict[str, Any]:
    """Return the plan of the folder with these runs in it; raise if it holds another comparison.

    What was planned and has not begun may be planned anew, and a plan of which nothing has begun is given up.
    """
    planned = {run.name: run.config.to_dict() for run in runs}
    there = read_json(folder / PLAN)
    if there is None:
        if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise UserError(f"{folder} is not empty and holds no comparison; give another folder with --out")
        return planned
    begun = {name for name in there if RunFolder(folder / name).begun}
    for name, config in planned.items():
        if name in begun and there[name] != config:
            what = "; ".join(differences(there[name], config))
            raise UserError(f"{folder} holds another comparison: for {name}, {what}. Give another folder with --out")
    return {**there, **planned} if begun else planned


def write_plan(whole: Mapping[str, Any], folder: Path) -> None:
    """Write the plan, and forget what was left by runs that were planned differently and never played a round."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = read_json(folder / PLAN)
        if there == whole:
            return
        for name, config in (there or {}).items():
            if whole.get(name) != config and not RunFolder(folder / name).begun:
                for left in (DESCRIPTION, INPUTS, LINES, SCHEMA):
                    (folder / name / left).unlink(missing_ok=True)
        write_json(folder / PLAN, whole)
    except OSError as error:
        raise UserError(f"can't write to {folder}: {error.strerror}; give another folder with --out") from None


def read_plan(folder: Path) -> list[Planned]:
    """Return the runs that a comparison's folder was planned with."""
    there = read_json(folder / PLAN)
    if there is None:
        raise UserError(f"{folder} holds no comparison: there is no {PLAN} in it")
    return [Planned(name, RunConfig.of(values)) for name, values in there.items()]
