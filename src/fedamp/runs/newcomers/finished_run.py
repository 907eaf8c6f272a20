"""A finished run as a newcomer needs it: what was agreed on, the model with its first values, and the last state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from fedamp.config import RunConfig
from fedamp.data.silos.schema import Schema
from fedamp.errors import UserError
from fedamp.methods import Method
from fedamp.models.flat_model import FlatModel
from fedamp.records.facts import Facts
from fedamp.records.last_state import LastState, read_last_state
from fedamp.records.reading import RunRecord, read_run
from fedamp.runs.in_use.loading import recorded_method, recorded_schema
from fedamp.runs.newcomers.newcomer import SETTING
from fedamp.runs.result import Result
from fedamp.runs.trained_model import Model, built_by_name, trained_model


@dataclass(frozen=True)
class FinishedRun:
    """What a newcomer needs of a run. None of it is anybody's data."""

    where: str  # for people: its folder
    config: RunConfig
    facts: Facts
    schema: Schema | None
    method: Method
    model: FlatModel
    last: LastState

    @property
    def members(self) -> list[str]:
        """The names of its clients, in order."""
        return self.facts.names or [f"client {i}" for i in range(self.last.server.num_clients)]

    @property
    def given_model(self) -> nn.Module | None:
        """The model as it was given from Python; None if its name says how to build it."""
        return None if built_by_name(self.config) else self.model.fresh()


def finished_run(run: str | Path | Result, model: Model | None = None) -> FinishedRun:
    """Return a run that can be joined, from its folder or its result; `model` is what was given to it from Python."""
    found = _of_result(run) if isinstance(run, Result) else _of_folder(Path(run), model)
    weight = found.config.method.parameters.get("self_weight")
    if weight == "oracle" or isinstance(weight, list | tuple):
        raise UserError(
            f"the method's self_weight is {weight!r}, one number for each client of the run, and a newcomer has none; "
            "run it again with self_weight=uniform"
        )
    return found


def _of_result(result: Result) -> FinishedRun:
    where = "the result" if result.folder is None else str(result.folder)
    _check_joinable(where, result.config)
    if result.last_state is None and result.folder is None:
        raise UserError(f"{where} is of a run that was ended early; only a finished run can be joined")
    if result.last_state is None and result.folder is not None:
        _check_finished(read_run(result.folder))
    last = result.last_state or read_last_state(result.folder or Path())
    if result.model is None:
        raise UserError(result.no_model)
    if result.method is None:
        raise UserError(
            f"the method of {where} was given from Python ({result.config.method.name}); join the result of the run "
            "itself, not of one that was loaded"
        )
    return FinishedRun(where, result.config, result.facts, result.schema, result.method, result.model, last)


def _of_folder(folder: Path, model: Model | None) -> FinishedRun:
    record = read_run(folder)
    config = RunConfig.of(record.config)
    _check_joinable(str(folder), config)
    _check_finished(record)
    last = read_last_state(folder)
    method = recorded_method(record, config)
    if method is None:
        raise UserError(
            f"the method of {folder} was given from Python ({config.method.name}); join the result there, with "
            "fedamp.join(result, ...)"
        )
    schema = recorded_schema(record, config)
    flat = trained_model(record, config, model, f"fedamp.join({str(folder)!r}, ..., model=...)")
    return FinishedRun(str(folder), config, record.facts, schema, method, flat, last)


def _check_joinable(where: str, config: RunConfig) -> None:
    if config.setting.name == "federation":
        raise UserError(f"{where} is the record of a federation: a new silo joins it where it runs (docs/deploy.md)")
    if config.setting.name == SETTING:
        joined = config.setting.parameters.get("run", "the run")
        raise UserError(f"{where} is a newcomer's own record; join the run that it joined, {joined}")


def _check_finished(record: RunRecord) -> None:
    if not record.finished:
        raise UserError(
            f"{record.path} has not finished, and only a finished run can be joined; `fedamp resume {record.path}` "
            "continues it"
        )
