"""Which runs a comparison has: methods, seeds and points of a grid; and the plan of them in its folder."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.files import read_json, write_json
from fedamp.methods import METHODS, USUAL, in_group
from fedamp.methods.base import GROUPS
from fedamp.records.differences import differences
from fedamp.records.folder import RunFolder
from fedamp.records.reading import DESCRIPTION, INPUTS, LINES, SCHEMA
from fedamp.runs.compare.grid import Axis, Having, at_point, in_a_name, points_of
from fedamp.runs.identity import data_digest
from fedamp.runs.material import load_material

PLAN = "comparison.json"


@dataclass(frozen=True)
class Planned:
    """One run of a comparison."""

    name: str  # of its folder
    config: RunConfig


def method_names(text: str) -> list[str]:
    """Return the methods of a list like `fedamp,fedavg`, in which `usual` stands for the paper's nine and AutoAMP,
    `all` for all that there are and a group's name (`clusters`, `personal-parts`) for its methods; Separate is always
    the first.

    Without it nobody could see whether collaborating helped.
    """
    words = {"all": tuple(METHODS), "usual": USUAL}
    asked = [name.strip() for name in text.split(",") if name.strip()]
    if not asked:
        raise UserError(f"methods is {text!r}; expected names, say fedamp,fedavg, or usual (see fedamp list methods)")
    names = [name for each in asked for name in words.get(each) or in_group(each) or (each,)]
    for name in names:
        checks.one_of("method", name, [*METHODS, *words, *(group.replace(" ", "-") for group in GROUPS)])
    return list(dict.fromkeys(["separate", *names]))


def check_against(against: str | None, names: Sequence[str]) -> None:
    """Raise unless the method that p compares with is one of those that are compared."""
    if against is None or against in names:
        return
    near = [] if against in METHODS else difflib.get_close_matches(str(against).lower(), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise UserError(
        f"against is {against!r}{hint}, which is not among the compared methods: these are {', '.join(names)}; choose "
        "one of them, or compare it too (--methods, or methods= in Python)"
    )


def hyperparameters(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the hyperparameters' names of each of these methods."""
    return {name: [each.name for each in fields(METHODS[name])] for name in names}


def plan(
    describe: Callable[[str], RunConfig], having: Having, seeds: Sequence[int], axes: Sequence[Axis] = ()
) -> list[Planned]:
    """Return the runs of a comparison; `describe(method)` gives a method's configuration."""
    runs: dict[str, Planned] = {}
    for name in having:
        base = describe(name)
        for point in points_of(name, axes, having):
            config = at_point(base, point) if point else base
            for seed in seeds:
                told = "-".join([name, *in_a_name(point), f"seed{seed}"])
                if told in runs:  # values that differ only in signs that a folder's name can't have
                    told += f"-{len(runs)}"
                runs[told] = Planned(told, replace(config, seed=seed))
    if any(len(axis.values) > 1 and not axis.is_swept for axis in axes) and not all(
        run.config.validation for run in runs.values()
    ):
        raise UserError(
            "a grid is chosen by validation scores, never by test: give --validation (validation= in Python), say 0.2"
        )
    return list(runs.values())


def effort(runs: Sequence[Planned], finished: int = 0) -> str:
    """Return in words how many runs there are to play, and why.

    >>> effort([Planned("a", RunConfig(seed=seed)) for seed in (0, 1)], finished=1)
    '2 runs: autoamp, 2 seeds; 1 of them is finished'
    """
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.config.method.name] = counts.get(run.config.method.name, 0) + 1
    seeds = len({run.config.seed for run in runs})
    points = {name: count // seeds for name, count in counts.items()}
    methods = ", ".join(name + (f" at {many} points" if many > 1 else "") for name, many in points.items())
    done = f"; {finished} of them {'is' if finished == 1 else 'are'} finished" if finished else ""
    return f"{_counted(len(runs), 'run')}: {methods}, {_counted(seeds, 'seed')}{done}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


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
    except (FileExistsError, NotADirectoryError):
        raise UserError(
            f"can't write to {folder}: there is a file in its place or above it; give another folder with --out (out= "
            "in Python)"
        ) from None
    except OSError as error:
        raise UserError(f"can't write to {folder}: {error.strerror}; give another folder with --out") from None


def read_plan(folder: Path) -> list[Planned]:
    """Return the runs that a comparison's folder was planned with."""
    there = read_json(folder / PLAN)
    if there is None:
        raise UserError(f"{folder} holds no comparison: there is no {PLAN} in it")
    return [Planned(name, RunConfig.of(values)) for name, values in there.items()]
