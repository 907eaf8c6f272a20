"""Several methods and seeds over one setting, in one folder: what a claim of "better" rests on."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedamp import checks
from fedamp.config import Named, RunConfig
from fedamp.config.sources import parse_value
from fedamp.errors import UserError
from fedamp.files import read_json, write_json, write_whole
from fedamp.methods import METHODS
from fedamp.records.differences import differences
from fedamp.records.folder import RunFolder
from fedamp.records.inputs import CHANGED, Inputs
from fedamp.records.metrics import counted_clients, score_table, summarise
from fedamp.records.reading import (
    BEST,
    CHOSEN,
    DESCRIPTION,
    INPUTS,
    LINES,
    MODELS,
    RESULT,
    SCHEMA,
    XI,
    RunRecord,
    read_run,
    read_runs,
)
from fedamp.rows import Rows
from fedamp.runs.identity import data_digest, inputs_of
from fedamp.runs.loop import play
from fedamp.runs.material import load_material
from fedamp.runs.parts import method_of, optimizer_of
from fedamp.runs.setup import assemble

PLAN = "comparison.json"

SAME_TRAJECTORY = {"fedavg-ft": "fedavg", "fedprox-ft": "fedprox"}
"""Methods that differ from another only in which models are scored: they are trained once."""


@dataclass(frozen=True)
class Planned:
    """One run of a comparison."""

    name: str  # of its folder
    config: RunConfig


def method_names(text: str) -> list[str]:
    """Return the methods of `all` or of a list like `fedamp,fedavg`; Separate is always the first.

    Without it nobody sees whether collaborating helped.
    """
    names = list(METHODS) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        checks.one_of("method", name, METHODS)
    return list(dict.fromkeys(["separate", *names]))


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values to try for each of the methods' parameters, from `method.sigma=1,10,100` and the like."""
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
    """Return the `method.NAME=VALUE` that are for this method: each goes to those of the compared that have it.

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
    """Return the runs of a comparison; `describe(method)` gives a method's description."""
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

    Of the samples too: other data under the same name get another folder.
    """
    told = sorted({json.dumps({**run.config.to_dict(), "seed": 0}, sort_keys=True) for run in runs})
    first = runs[0].config
    told.append(data_digest(load_material(first, data_dir)))
    words = [Path(first.data).name, first.setting.name, first.model.name]
    return "-".join([*words, hashlib.sha256("".join(told).encode()).hexdigest()[:8]])


def play_all(
    runs: Sequence[Planned],
    folder: Path,
    data_dir: Path | None = None,
    observe: Callable[[int, Planned, Mapping[str, Any] | None], None] = lambda number, run, line: None,
) -> None:
    """Play every run that is not finished yet; what is broken off goes on by the same call.

    `observe(number, run, line)` hears of every round, and with None of every run that is done. Nothing is written
    before every run is known to be possible: a mistake in the last one costs no hours, and leaves no plan behind.
    """
    whole = _whole_plan(runs, folder)
    targets = _targets(runs, folder, data_dir)
    _check_inputs(runs, targets, whole, folder)
    check_possible([run for run in runs if not targets[run.name].finished(run.config.to_dict())], data_dir)
    _write_plan(whole, folder)
    # What is only scored elsewhere comes after what is trained, in whatever order the methods were named.
    for number, run in enumerate(sorted(runs, key=lambda run: _source(run, runs) is not None)):
        target = targets[run.name]
        if not target.finished(run.config.to_dict()):
            source = _source(run, runs)
            if source is None:
                setup = assemble(run.config, data_dir=data_dir)

                def tell(line: Mapping[str, Any], number: int = number, run: Planned = run) -> None:
                    observe(number, run, line)

                play(run.config, setup, target, tell)
            else:
                score_elsewhere(folder / source.name, target.path, run.config)
        observe(number, run, None)


def _targets(runs: Sequence[Planned], folder: Path, data_dir: Path | None) -> dict[str, RunFolder]:
    """Return each run's folder, with the data and the model that it belongs to."""
    made: dict[str, Inputs] = {}
    targets = {}
    for run in runs:
        alike = _without_method(run.config)
        key = json.dumps(alike.to_dict(), sort_keys=True)
        if key not in made:
            made[key] = inputs_of(alike, load_material(alike, data_dir))
        targets[run.name] = RunFolder(folder / run.name, made[key])
    return targets


def _check_inputs(
    runs: Sequence[Planned], targets: Mapping[str, RunFolder], whole: Mapping[str, Any], folder: Path
) -> None:
    """Raise where a run of this comparison was begun with other data, or with another model: none may be mixed."""
    for run in runs:
        target = targets[run.name]
        if target.begun and (what := target.differences(run.config.to_dict())):
            raise UserError(
                f"{folder} holds another comparison: of {run.name}, {'; '.join(what)}. Give another folder with --out"
            )
    here = next(target.inputs for target in targets.values())
    for name in whole:
        if name not in targets and RunFolder(folder / name).begun and here is not None:
            there = read_json(folder / name / INPUTS) or {}
            # What does not depend on the seed; of the rest, nobody here knows what it should be.
            for changed, now in (("data", here.data), ("code", here.code)):
                if there.get(changed) != now:
                    words = f"of {name}, {CHANGED[changed]}"
                    raise UserError(f"{folder} holds another comparison: {words}. Give another folder with --out")


def check_possible(runs: Sequence[Planned], data_dir: Path | None = None) -> None:
    """Raise where a run can't be played: data that is not there, a model that does not fit, a hyperparameter's name.

    Runs that differ in their method alone have one federation, which is made once.
    """
    alike: dict[str, list[Planned]] = {}
    for run in runs:
        alike.setdefault(json.dumps(_without_method(run.config).to_dict(), sort_keys=True), []).append(run)
    for mine in alike.values():
        setup = assemble(_without_method(mine[0].config), data_dir=data_dir)
        slim = Rows(setup.w.params[:, :1], setup.w.buffers[:, :0])
        for run in mine:
            method = method_of(run.config, setup.clients.groups)
            optimizer_of(run.config, method)
            # What must fit the clients (a list of self weights, say) shows with models of one parameter too.
            method.server_send(method.server_init(slim), 1)


def _without_method(config: RunConfig) -> RunConfig:
    plain = Named("separate")
    return replace(config, method=plain, rounds=1, optimizer=None, lr=None, momentum=0.0, weight_decay=0.0)


def _whole_plan(runs: Sequence[Planned], folder: Path) -> dict[str, Any]:
    """Return the plan of the folder with these runs in it; raise where it holds another comparison.

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
            raise UserError(f"{folder} holds another comparison: of {name}, {what}. Give another folder with --out")
    return {**there, **planned} if begun else planned


def _write_plan(whole: Mapping[str, Any], folder: Path) -> None:
    """Write the plan, and forget what was left by runs that were planned otherwise and never played a round."""
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


def _source(run: Planned, runs: Iterable[Planned]) -> Planned | None:
    """Return the run of this comparison that has the same trajectory and is trained, if there is one."""
    twin = SAME_TRAJECTORY.get(run.config.method.name)
    wanted = replace(run.config, method=Named(twin or "", run.config.method.parameters))
    return next((other for other in runs if twin and other.config == wanted), None)


def score_elsewhere(source: Path, target: Path, config: RunConfig) -> None:
    """Write a finished run's record again as that of a method that scores the same trajectory at other models."""
    record = read_run(source)
    if record.result is None:
        raise UserError(f"{source} did not end; {target.name} needs it")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in (MODELS, BEST, XI, SCHEMA, INPUTS):
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    (target / LINES).write_text("".join(json.dumps(line) + "\n" for line in record.lines))
    metric = record.result["metric"]
    table = score_table(record.lines, METHODS[config.method.name].scored, metric)
    summary = summarise(table, metric, counted_clients(table.shape[1], config.poisoned))
    result = {
        **record.result,
        "method": config.method.name,
        "scored": METHODS[config.method.name].scored,
        **summary.to_dict(),
        "seconds": 0.0,
        "trained_as": record.result["method"],
    }
    write_json(target / DESCRIPTION, config.to_dict())
    write_json(target / RESULT, result)  # last of all: its presence says that the rest is whole


def validation_score(record: RunRecord, metric: str) -> float:
    """Return the best mean validation score over the rounds: what a grid is chosen by. Higher is better."""
    scored = METHODS[record.config["method"]["name"]].scored
    table = score_table(record.lines, scored, metric, on="validation")
    best = summarise(table, metric, counted_clients(table.shape[1], record.config["poisoned"])).best
    return best if metric == "accuracy" else -best


def read_plan(folder: Path) -> list[Planned]:
    """Return the runs that a comparison's folder was planned with."""
    there = read_json(folder / PLAN)
    if there is None:
        raise UserError(f"{folder} holds no comparison: there is no {PLAN} in it")
    return [Planned(name, RunConfig.of(told)) for name, told in there.items()]


def settle(runs: Sequence[Planned], folder: Path) -> list[RunRecord]:
    """Return what a comparison shows, and write down which points of a grid were chosen."""
    names = {run.name for run in runs}
    everything = read_runs(folder, everything=True)
    ended = [record for record in everything if record.finished]
    shown = choose(ended)  # of all that was ever compared here: a later command may add a method, or a point
    if len(shown) < len(ended):
        write_whole(folder / CHOSEN, json.dumps({"runs": [record.path.name for record in shown]}).encode())
    return choose([record for record in everything if record.path.name in names])


def choose(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records of each method's best point of the grid, by validation, the mean over seeds."""
    points: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        method = record.config["method"]
        points.setdefault((method["name"], json.dumps(method, sort_keys=True)), []).append(record)
    best: dict[str, tuple[float, list[RunRecord]]] = {}
    for (name, _), mine in points.items():
        alone = sum(1 for other, _ in points if other == name) == 1
        metric = (mine[0].result or {}).get("metric", "accuracy")
        score = 0.0 if alone else float(np.mean([validation_score(record, metric) for record in mine]))
        if name not in best or score > best[name][0]:
            best[name] = (score, mine)
    return [record for _, mine in best.values() for record in mine]
