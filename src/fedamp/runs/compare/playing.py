"""A comparison's runs, played one after another; what is finished is not played again, and nothing is mixed."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedamp.config import Named, RunConfig
from fedamp.errors import UserError
from fedamp.files import read_json
from fedamp.ranks.launched import is_leader
from fedamp.ranks.team import by_all, from_leader, team
from fedamp.records.folder import RunFolder
from fedamp.records.inputs import CHANGED, Inputs
from fedamp.records.reading import INPUTS
from fedamp.rows import Rows
from fedamp.runs.compare.planning import Planned, effort, whole_plan, write_plan
from fedamp.runs.compare.twins import score_elsewhere, twin_of
from fedamp.runs.handed_over import HandedOver
from fedamp.runs.identity import own_code
from fedamp.runs.loop import Observer, play
from fedamp.runs.parts import optimizer_of
from fedamp.runs.result import Result
from fedamp.runs.setup import Setup

NOTHING = HandedOver()

Observe = Callable[[int, Planned, Mapping[str, Any] | None], bool | None]
Player = Callable[[RunConfig, Setup, RunFolder, Observer], Result]


def play_all(
    runs: Sequence[Planned],
    folder: Path,
    given: HandedOver = NOTHING,
    observe: Observe = lambda number, run, line: None,
    announce: Callable[[str], None] = lambda text: None,
    player: Player | None = None,
) -> None:
    """Play every run that is not finished yet; after an interruption, the same call continues.

    `observe(number, run, line)` is called for every round, and with None for every run that is done. Nothing is written
    before every run is known to be possible: a mistake in the last one costs no hours, and leaves no plan behind.
    `announce` is told, before the first one, how many there are. `player` plays a run; by default `play` itself.
    """
    if (us := team()) is not None:
        asked = json.dumps([[run.name, run.config.to_dict()] for run in runs], sort_keys=True)
        us.agree("the comparison", hashlib.sha256(asked.encode()).hexdigest(), "give all of them the same command")
    whole = from_leader("the plan", lambda: whole_plan(runs, folder))
    targets = by_all("the data", lambda: _targets(runs, folder, given))
    from_leader("what is in the folder", lambda: _check_inputs(runs, targets, whole, folder))
    done = from_leader("what is finished", lambda: {run.name for run in runs if _finished(run, targets)})
    by_all("the runs", lambda: check_possible([run for run in runs if run.name not in done], given))
    with contextlib.ExitStack() as alone:
        from_leader("the folder", lambda: alone.enter_context(replace(targets[runs[0].name], path=folder).alone()))
        # Read again: another process may have played here since.
        from_leader("writing the plan", lambda: write_plan(whole_plan(runs, folder), folder))
        announce(effort(runs, len(done)))
        _play_in_turn(runs, folder, targets, done, given, observe, player or play)


def _play_in_turn(
    runs: Sequence[Planned],
    folder: Path,
    targets: Mapping[str, RunFolder],
    done: Collection[str],
    given: HandedOver,
    observe: Observe,
    player: Player,
) -> None:
    """Play those runs that are not done."""
    # What is only scored elsewhere comes after what is trained, in whatever order the methods were named.
    for number, run in enumerate(sorted(runs, key=lambda run: twin_of(run, runs) is not None)):
        target = targets[run.name]
        if run.name not in done:
            source = twin_of(run, runs)
            setup = given.assemble(run.config)
            if source is None:

                def tell(line: Mapping[str, Any], number: int = number, run: Planned = run) -> bool | None:
                    return observe(number, run, line)

                player(run.config, setup, target, tell)
            else:
                score = partial(score_elsewhere, folder / source.name, target.path, run.config, setup)
                from_leader("scoring elsewhere", score)
        if is_leader():
            observe(number, run, None)


def _finished(run: Planned, targets: Mapping[str, RunFolder]) -> bool:
    return targets[run.name].finished(run.config.to_dict()) is not None


def _targets(runs: Sequence[Planned], folder: Path, given: HandedOver) -> dict[str, RunFolder]:
    """Return each run's folder, with the data and the model that it belongs to."""
    made: dict[str, Inputs] = {}
    targets = {}
    for run in runs:
        alike = _without_method(run.config)
        key = json.dumps(alike.to_dict(), sort_keys=True)
        if key not in made:
            made[key] = given.inputs(alike, given.material(alike))
        own = given.method(run.config)
        inputs = made[key] if own is None else replace(made[key], method=own_code(own))
        targets[run.name] = RunFolder(folder / run.name, inputs)
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


def check_possible(runs: Sequence[Planned], given: HandedOver = NOTHING) -> None:
    """Raise if a run can't be played: data that is not there, a model that does not fit, a wrong hyperparameter.

    Runs that differ only in their method have one federation, which is made once.
    """
    alike: dict[str, list[Planned]] = {}
    for run in runs:
        alike.setdefault(json.dumps(_without_method(run.config).to_dict(), sort_keys=True), []).append(run)
    for mine in alike.values():
        setup = given.assemble(_without_method(mine[0].config))
        slim = Rows(setup.w.params[:, :1], setup.w.buffers[:, :0])
        for run in mine:
            method = given.method_for(run.config, setup.clients.groups)
            optimizer_of(run.config, method)
            # What must fit the clients (a list of self weights, say) shows with models of one parameter too.
            method.server_send(method.server_init(slim), 1)


def _without_method(config: RunConfig) -> RunConfig:
    plain = Named("separate")
    return replace(config, method=plain, rounds=1, optimizer=None, lr=None, momentum=0.0, weight_decay=0.0)
