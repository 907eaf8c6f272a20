"""`fedamp.load`: a run from its folder alone. Its data are not needed, nor looked for; its model's code is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from fedamp.config import RunConfig
from fedamp.data.silos.schema import Schema
from fedamp.data.silos.schema_file import read_schema
from fedamp.errors import UserError
from fedamp.files import read_json
from fedamp.methods import METHODS, Method
from fedamp.models.flat_model import FlatModel
from fedamp.records.beside_alone import BesideAlone
from fedamp.records.facts import Facts
from fedamp.records.folder import read_models
from fedamp.records.metric_scores import Scored
from fedamp.records.newcomers import Newcomer, Newcomers
from fedamp.records.reading import BEST, INPUTS, MODELS, SCHEMA, RunRecord, read_run
from fedamp.records.summaries import counted_clients, score_table, summarise
from fedamp.records.take_home import CHOSEN, TakeHome
from fedamp.records.then_alone import ThenAlone
from fedamp.rows import Rows
from fedamp.runs.parts import method_of
from fedamp.runs.result import Kept, Result
from fedamp.runs.trained_model import Model, trained_model


def load(folder: str | Path, model: Model | None = None) -> Result:
    """Return the run in a folder: its scores, history and weights, and every client's model, ready to predict.

    The run may have been made by the command line or from Python, have finished or been interrupted; its data may be
    gone. A model of fedamp's, or one named `module:function`, is built again by its code; one that was handed over
    from Python is given as `model`: a module, or the function that builds it, as it was given to the run. Code that
    has changed since is an error; without any code there are still the scores.
    """
    record = read_run(Path(folder))
    config = RunConfig.of(record.config)
    check_loadable(record, config)
    schema = recorded_schema(record, config)
    flat, why = None, ""
    try:
        flat = trained_model(record, config, model, f"fedamp.load({str(record.path)!r}, model=...)")
    except UserError as error:
        if model is not None:
            raise
        why = str(error)
    return recorded(record, config, recorded_method(record, config), flat, schema, why)


def recorded_schema(record: RunRecord, config: RunConfig) -> Schema | None:
    """Return the schema by which a run's rows were encoded, or None if its samples were taken as they were."""
    path = record.path / SCHEMA
    if path.exists():
        return read_schema(path)
    facts = record.facts
    # A label may also be that of arrays in tables, which are not encoded; a table's row is always a vector.
    table = config.label is not None and len(facts.input_shape or ()) < 2
    if facts.encoded or (facts.encoded is None and table):
        raise UserError(
            f"{path} is missing: the folder is damaged. By it rows were encoded and scaled for the model, and without "
            "it none can be; take the folder from a backup, or run it again"
        )
    return None


def check_loadable(record: RunRecord, config: RunConfig) -> None:
    """Raise if a folder has no models that could be given back."""
    if config.setting.name == "federation":
        raise UserError(
            f"{record.path} is the record of a federation: each silo has its model at home, in run/models, and asks it "
            "with `fedamp silo predict`"
        )
    if record.result is None:
        raise UserError(
            f"{record.path} did not finish, so it has no final models; `fedamp resume {record.path}` continues it"
        )
    if "best_models" not in record.result:
        raise UserError(f"{record.path} was written by an earlier version, which kept no scores; run it again")


def recorded(
    record: RunRecord,
    config: RunConfig,
    method: Method | None,
    model: FlatModel | None,
    schema: Schema | None,
    no_model: str = "",
) -> Result:
    """Return the result that a run's folder holds."""
    done = record.result
    assert done is not None, "checked before"
    last, xi = read_models(record.path / MODELS), record.xi()
    best = read_models(record.path / BEST) if (record.path / BEST).exists() else {}
    taken, choice = best.pop(CHOSEN, None), done.get("take_home")
    scored, metric = done["scored"], done["metric"]
    facts = Facts.of(done["facts"])
    again = partial(Kept.of, metric=metric, undefined=facts.undefined or ())
    counted = counted_clients(len(_stack(record, last, scored)), config.poisoned)
    return Result(
        config=config,
        history=record.lines,
        summary=summarise(score_table(record.lines, scored, metric), metric, counted),
        last_models={entry: again(rows, done["models"][entry]) for entry, rows in last.items()},
        xi=None if xi is None else torch.from_numpy(xi),
        warnings=list(done["warnings"]),
        facts=facts,
        seconds=done["seconds"],
        method=method,
        scored=scored,
        model=model,
        schema=schema,
        folder=record.path,
        best_models={entry: again(rows, done["best_models"][entry]) for entry, rows in best.items()},
        alone=BesideAlone.of(done["alone"]) if "alone" in done else None,
        take_home=None if choice is None else TakeHome.of(choice, metric, facts.undefined or ()),
        taken=taken,
        then_alone=ThenAlone.of(done["then_alone"]) if "then_alone" in done else None,
        metrics={name: Scored.of(values) for name, values in done.get("metrics", {}).items()},
        newcomers=Newcomers.of(done["newcomers"]) if "newcomers" in done else None,
        joined=Newcomer.of(done["joined"]) if "joined" in done else None,
        no_model=no_model,
    )


def _stack(record: RunRecord, stacks: dict[str, Rows], entry: str) -> Rows:
    if entry not in stacks:
        raise UserError(f"{record.path} has no models named {entry!r}; the folder is damaged")
    return stacks[entry]


def recorded_method(record: RunRecord, config: RunConfig) -> Method | None:
    """Return the method of a run; None if it was a user's own, of which only the name is known."""
    own = (read_json(record.path / INPUTS) or {}).get("method") is not None
    if own or config.method.name not in METHODS:
        return None
    groups = record.facts.groups
    return method_of(config, None if groups is None else tuple(groups))
