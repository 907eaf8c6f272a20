"""A comparison's runs, played one after another; what is finished is not played again, and nothing is mixed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedamp.config import Named, RunConfig
from fedamp.errors import UserError
from fedamp.files import read_json
from fedamp.records.folder import RunFolder
from fedamp.records.inputs import CHANGED, Inputs
from fedamp.records.reading import INPUTS
from fedamp.rows import Rows
from fedamp.runs.compare.planning import Planned, whole_plan, write_plan
from fedamp.runs.compare.twins import score_elsewhere, twin_of
from fedamp.runs.identity import inputs_of
from fedamp.runs.loop import play
from fedamp.runs.material import load_material
from fedamp.runs.parts import method_of, optimizer_of
from fedamp.runs.setup import assemble


def play_all(
    runs: Sequence[Planned],
    folder: Path,
    data_dir: Path | None = None,
    observe: Callable[[int, Planned, Mapping[str, Any] | None], None] = lambda number, run, line: None,
) -> None:
    """Play every run that is not finished yet; after an interruption, the same call continues.

    `observe(number, run, line)` is called for every round, and with None for every run that is done. Nothing is written
    before every run is known to be possible: a mistake in the last one costs no hours, and leaves no plan behind.
    """
    whole = whole_plan(runs, folder)
    targets = _targets(runs, folder, data_dir)
    _check_inputs(runs, targets, whole, folder)
    check_possible([run for run in runs if not targets[run.name].finished(run.config.to_dict())], data_dir)
    write_plan(whole, folder)
    # What is only scored elsewhere comes after what is trained, in whatever order the methods were named.
    for number, run in enumerate(sorted(runs, key=lambda run: twin_of(run, runs) is not None)):
        target = targets[run.name]
        if not target.finished(run.config.to_dict()):
            source = twin_of(run, runs)
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
    """Raise if a run of this comparison was begun with other data, or with another model: none may be mixed."""
    for run in runs:
        target = targets[run.name]
        if target.begun and (what := target.differences(run.config.to_dict())):
            raise UserError(
                f"{folder} holds another comparison: for {run.name}, {'; '.join(what)}. Give another folder with --out"
            )
    here = next(target.inputs for target in targets.values())
    for name in whole:
        if name not in targets and RunFolder(folder / name).begun and here is not None:
            there = read_json(folder / name / INPUTS) or {}
            # What does not depend on the seed; of the rest, nobody here knows what it should be.
            for changed, now in (("data", here.data), ("code", here.code)):
                if there.get(changed) != now:
                    words = f"for {name}, {CHANGED[changed]}"
                    raise UserError(f"{folder} holds another comparison: {words}. Give another folder with --out")


def check_possible(runs: Sequence[Planned], data_dir: Path | None = None) -> None:
    """Raise if a run can't be played: data that is not there, a model that does not fit, a wrong hyperparameter.

    Runs that differ only in their method have one federation, which is made once.
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
