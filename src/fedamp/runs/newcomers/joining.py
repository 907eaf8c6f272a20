"""`fedamp.join`: a new silo gets a model from a finished run; nobody else's data are needed, and nobody else trains."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from fedamp import checks
from fedamp.config import Named, RunConfig
from fedamp.config.metrics import Metric
from fedamp.config.run_config import GIVEN
from fedamp.data.silos.read import silo_name
from fedamp.errors import UserError
from fedamp.methods.newcomer import Joining
from fedamp.ranks.launched import FROM_PYTHON, one_process
from fedamp.records.folder import RunFolder
from fedamp.runs.identity import inputs_of
from fedamp.runs.judging import Loss, OwnParts
from fedamp.runs.loop import Observer, ignore, play
from fedamp.runs.newcomers.data import newcomer_material
from fedamp.runs.newcomers.finished_run import FinishedRun, finished_run
from fedamp.runs.newcomers.newcomer import ROUNDS, SETTING, as_newcomer
from fedamp.runs.parts import device_of
from fedamp.runs.result import Result
from fedamp.runs.setup import assemble
from fedamp.training.torch_switches import use_dtype

LONGEST_NAME = 100
"""Characters of a newcomer's name."""
FOLDER = "newcomers"
"""Where the command line writes newcomers' records, in the folder of the run that they join."""


def join(
    run: str | Path | Result,
    data: str | Path | Sequence[Any],
    *,
    name: str | None = None,
    rounds: int = ROUNDS,
    validation: float | None = None,
    device: str | None = None,
    model: nn.Module | Callable[..., nn.Module] | None = None,
    loss: Loss | None = None,
    metric: Metric | None = None,
    out: str | Path | None = None,
    observer: Observer = ignore,
) -> Result:
    """Join a finished run as a new silo, and return the newcomer's own result; `joined` says what it gets.

    `run` is a run's folder, or its result. `data` is the newcomer's file (or its folder of files), or its (x, y), or
    (x, y, x_test, y_test). Its rows are encoded by the run's schema; shares of them are held out as in the run, unless
    `validation` says otherwise. For some rounds the newcomer trains as the run's clients did, and the server mixes for
    it from the run's last models. Nobody else takes part, and the run's folder stays as it is. `model` is the one that
    was given to the run from Python, if `run` is a folder; a `loss` and a `metric` that were are given again in any
    case. `out` is a folder for the record, as of `fedamp.run`.
    """
    one_process("fedamp.join", FROM_PYTHON)
    checks.count("rounds", rounds)
    source, own = finished_run(run, model), OwnParts(loss, metric)
    _check_same_parts(source, own)
    name = _name(name, data, source.members)
    config, given = _config(source, data, name, rounds, validation, device), source.given_model
    with use_dtype(source.model.dtype):
        # The next number after all that were dealt: its random numbers are nobody else's.
        material = newcomer_material(source, config, data, name, source.config.clients)
        folder = None if out is None else RunFolder(Path(out), inputs_of(config, material, given, source.method))
        _check_free(folder, config)
        last = source.last.to(device_of(config.device))
        joining = Joining(source.method, last.server, last.k, tuple(source.members))
        setup = assemble(config, material, given, joining, own=own, together=False)  # its samples may define no score
        return play(config, setup, folder, observer)


def folder_for(run: Path, name: str) -> Path:
    """Return the folder of a newcomer's record: two names never share one, however alike they are.

    >>> folder_for(Path("run"), "hospital-d").as_posix(), folder_for(Path("run"), "hospital d").as_posix()
    ('run/newcomers/hospital-d', 'run/newcomers/hospital-d-d4b03e2f')
    """
    words = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name.lower())
    if words != name or words.startswith("."):
        words = f"{words.lstrip('.')[:40]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return run / FOLDER / words


def default_name(data: str | Path) -> str:
    """Return what a newcomer is called that gives no name: as its file is."""
    return silo_name(Path(data))


def _check_same_parts(source: FinishedRun, own: OwnParts) -> None:
    """Raise unless a loss and a metric that were given to the run from Python are given again, and no others."""
    if own.metric is not None and not isinstance(own.metric, Metric):
        raise UserError(f"metric is {own.metric!r}; a newcomer is judged as the run was: leave it out")
    here = own.described()
    for part, code in (("loss", "loss_code"), ("metric", "metric_code")):
        there = getattr(source.config, code)
        if there is not None and code not in here:
            raise UserError(
                f"{source.where} has a {part} of its own that was given from Python; join there, with "
                f"fedamp.join(..., {part}=...)"
            )
        if here.get(code) != there or (part in here and here[part] != getattr(source.config, part)):
            raise UserError(
                f"{part} is not the one of {source.where}; give what was given to the run, or nothing if nothing was"
            )


def _name(name: str | None, data: str | Path | Sequence[Any], members: Sequence[str]) -> str:
    """Return the newcomer's name; one that is taken is an error."""
    if name is None:
        name = default_name(data) if isinstance(data, str | Path) else "newcomer"
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise UserError(f"name is {name!r}; expected a text of 1 to {LONGEST_NAME} characters")
    if name in members:
        raise UserError(f"the run has a client {name!r} already; give the newcomer another name (--name)")
    return name


def _check_free(folder: RunFolder | None, config: RunConfig) -> None:
    """Raise if there is another record in the folder; the run's own error would speak of `fedamp run`."""
    if folder is not None and folder.begun and (what := folder.differences(config.to_dict())):
        raise UserError(
            f"{folder.path} holds another run: {'; '.join(what)}. It stays as it is; give another folder for this "
            "newcomer (fedamp join --out, or out= in Python)"
        )


def _config(
    source: FinishedRun,
    data: str | Path | Sequence[Any],
    name: str,
    rounds: int,
    validation: float | None,
    device: str | None,
) -> RunConfig:
    """Return the configuration of the newcomer's own run: it says which run was joined, and by whom."""
    # By its state it is the same run wherever its folder is; the folder's name is for people.
    setting = Named(SETTING, {"run": Path(source.where).name, "state": source.last.digest(), "silo": name})
    mine = as_newcomer(source.config, rounds, setting)
    mine = replace(mine, data=str(data) if isinstance(data, str | Path) else GIVEN, schema=None, silo_column=None)
    share = mine.validation if validation is None else validation
    if source.given_model is not None:  # the function that built the clients' own first models is not kept
        mine = replace(mine, init="common")
    on = mine.then_alone if share else 0  # without held-out samples nobody says when to stop
    return replace(mine, validation=share, then_alone=on, device=mine.device if device is None else device)
