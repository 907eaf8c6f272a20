"""`fedamp.compare`: a comparison from Python, with the same numbers as the command's."""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fedamp import checks
from fedamp.comparison.comparison import Comparison
from fedamp.config import Named, RunConfig
from fedamp.config.effects import check_effects
from fedamp.errors import FedampWarning, UserError
from fedamp.methods import METHODS, Method
from fedamp.ranks.launched import is_leader
from fedamp.ranks.team import from_leader, team
from fedamp.records.against import keep_against
from fedamp.runs.compare import Axis, Planned, axis_of, check_against, method_names, plan, play_all, settle
from fedamp.runs.from_python import Choice, described
from fedamp.runs.handed_over import HandedOver
from fedamp.runs.watching.progress import Progress, shown, where
from fedamp.runs.watching.round_line import RoundLine, is_played
from fedamp.runs.watching.track import tracker_names
from fedamp.runs.watching.watched import play_tracked, say


def compare(
    methods: str | Sequence[Choice | Method] = "usual",
    *,
    seeds: int | Iterable[int] = 1,
    grid: Mapping[str, Sequence[Any]] | None = None,
    against: str | None = None,
    clients: int | Iterable[Sequence[Any]] | None = None,
    model: Choice | nn.Module | Callable[..., nn.Module] = RunConfig.model.name,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    progress: Progress = "auto",
    track: str | Sequence[str] | None = None,
    **settings: Any,
) -> Comparison:
    """Run several methods and seeds over one setting, and return who gains; Separate always takes part.

    `methods` is "usual" (the paper's nine and AutoAMP), "all", a text like "fedamp,fedavg" or "clusters" (a group), or
    a list of names, tables with a name and parameters, and methods of your own. `seeds` is how many, counting up from
    `seed`, or a list of them. `grid` has the values to try, by name: {"lr": [0.01, 0.001], "method.sigma": [1, 10],
    "fedamp:epochs": [1, 5], "fedamp.sigma": [1, 10]} are chosen for each method by validation, {"setting.share": [0.6,
    0.9]} makes a table for each value. `against` is the method that p compares with. The other arguments are those of
    `fedamp.run`. `out` is a folder to write to: what is finished there is not played again, and what was interrupted
    continues.
    """
    team()  # before anything is looked at, as in `fedamp.run`
    if "method" in settings:
        raise UserError(f"method is {settings['method']!r}; a comparison takes methods=[...]")
    given_settings = {name: value for name, value in settings.items() if value is not None}
    base, given = described(given_settings, clients, model, "separate", data_dir)
    choices, own = _choices(methods)
    given = replace(given, methods=own)
    having = {name: _hyperparameters(name, own) for name in choices}
    axes = [axis_of(name, _values(name, values), having) for name, values in (grid or {}).items()]
    _check_model(axes, model)
    check_against(against, list(choices))
    numbers = _numbers(seeds, base.seed)
    runs = plan(lambda name: replace(base, method=choices[name]), having, numbers, axes)
    check_effects([run.config for run in runs])
    folder = Path(out) if out is not None else from_leader("a folder", lambda: Path(tempfile.mkdtemp(prefix="fedamp-")))
    try:
        _play(runs, folder, given, progress, tracker_names(track), against)
        settled = from_leader("the records", lambda: settle(runs, folder))
        found = Comparison(folder, settled, {run.name: run.config for run in runs}, given, against)
    except BaseException:
        if out is None and is_leader():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if out is None and is_leader():
        weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    for each in found.warnings if is_leader() else ():
        warnings.warn(each, FedampWarning, stacklevel=2)
    return found


def _play(
    runs: Sequence[Planned],
    folder: Path,
    given: HandedOver,
    progress: Progress,
    names: Sequence[str],
    against: str | None,
) -> None:
    def begin(text: str) -> None:
        from_leader("what p compares with", lambda: keep_against(folder, against))
        if where(progress) != "nowhere" and is_leader():
            print(text, file=sys.stderr)

    with shown(progress if is_leader() else False, sum(run.config.rounds for run in runs)) as show:

        def observe(number: int, run: Planned, line: Mapping[str, Any] | None) -> None:
            if line is not None and is_played(line):
                config = run.config
                scored = given.scored(config.method.name)
                show(RoundLine.of(line, config.rounds, scored, config.poisoned), run.name)

        player = partial(play_tracked, names, warn=say, store=folder) if names else None
        play_all(runs, folder, given, observe, begin, player)


def _choices(methods: str | Sequence[Choice | Method]) -> tuple[dict[str, Named], dict[str, Method]]:
    """Return the compared methods by name, Separate first, and those among them that are the user's own objects."""
    if isinstance(methods, str):
        return {name: Named(name) for name in method_names(methods)}, {}
    by_kind = {kind: name for name, kind in METHODS.items()}
    chosen: dict[str, Named] = {}
    own: dict[str, Method] = {}
    for each in [methods] if isinstance(methods, Mapping | Named | Method) else methods:
        if isinstance(each, Method):
            choice = Named(by_kind.get(type(each), type(each).__name__.lower()), vars(each))
            if type(each) not in by_kind:
                own[choice.name] = each
        else:
            choice = Named.of(each, "method")
            checks.one_of("method", choice.name, METHODS)
        if choice.name in chosen:
            raise UserError(
                f"methods has {choice.name!r} twice; try its parameters by a grid, say grid={{'{choice.name}.NAME': "
                "[VALUE, VALUE]}, or make two comparisons"
            )
        chosen[choice.name] = choice
    if not chosen:
        raise UserError("methods is empty; expected at least one, say ['fedamp']: Separate takes part in any case")
    return {"separate": Named("separate"), **chosen}, own


def _hyperparameters(name: str, own: Mapping[str, Method]) -> list[str]:
    return [each.name for each in fields(own[name] if name in own else METHODS[name])]


def _values(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise UserError(f"grid has {values!r} for {name!r}; expected a list of values to try")
    return [checks.plain(value) for value in values]


def _numbers(seeds: int | Iterable[int], first: int) -> list[int]:
    """Return the seeds: so many from the first on, or those that are listed."""
    if checks.is_whole(seeds):
        checks.count("seeds", seeds)
        return list(range(first, first + int(seeds)))
    if not isinstance(seeds, Iterable) or isinstance(seeds, str):
        raise UserError(f"seeds is {seeds!r}; expected how many, or a list of seeds")
    numbers = list(dict.fromkeys(checks.plain(list(seeds))))
    for number in numbers:
        checks.seed("seed", number)
    if not numbers:
        raise UserError("seeds is empty; expected at least one")
    return numbers


def _check_model(axes: Sequence[Axis], model: object) -> None:
    """Raise if a grid varies a model that was handed over and can't be varied."""
    for axis in axes:
        table, dot, _ = axis.place.partition(".")
        module = isinstance(model, nn.Module)
        if table == "model" and (module or not (dot or isinstance(model, str | Mapping | Named))):
            what = "a module" if module else "a function"
            raise UserError(f"grid varies {axis.place}, but model is {what} of your own; give a model by its name")
