"""A client's model, taken out of a run folder for use elsewhere: safetensors, and a small JSON of how to build it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import nn

from fedamp import checks, models
from fedamp.config import RunConfig
from fedamp.data.silos.schema import Schema
from fedamp.data.silos.schema_file import read_schema
from fedamp.errors import UserError
from fedamp.files import read_json, write_whole
from fedamp.methods.alone_beside import ALONE
from fedamp.models.fingerprint import structure_digest
from fedamp.models.flat_model import FlatModel
from fedamp.models.rebuild import describe_layers, rebuilds
from fedamp.records.folder import read_models
from fedamp.records.reading import BEST, INPUTS, MODELS, SCHEMA, RunRecord, read_run
from fedamp.records.take_home import CHOSEN, SCORED
from fedamp.rows import Rows
from fedamp.runs.result import LAST, POOLED, VALIDATED


def export_client(folder: Path, client: int, out: Path | None = None, take_home: str | None = None) -> Path:
    """Write the model that a client takes home to `out`.safetensors and `out`.json, and return the first.

    It is that of the best validated round, or of the last if nothing was held out for validation; the JSON says
    which, and has the test score of exactly this model. `take_home` is "scored" or "chosen", see
    `fedamp.records.take_home`, or "alone", the model that was trained alone; by default what the run says.
    """
    run = read_run(folder)
    config, facts = RunConfig.of(run.config), run.facts
    _check_exportable(run, config, client, take_home == ALONE)
    module = _untrained(folder, config, facts.input_shape or [], facts.num_outputs or 0)
    row, score = _taken_home(run, config, client, take_home)
    target = out or folder / f"client-{client}{'-alone' if take_home == ALONE else ''}.safetensors"
    how = {
        **how_to_build(config, module, facts.input_shape or [], facts.num_outputs or 0),
        "shift": facts.shift or [0.0],  # samples that were given from Python are taken as they are
        "scale": facts.scale or [1.0],
        **(how_to_encode(read_schema(folder / SCHEMA)) if (folder / SCHEMA).exists() else {}),
        "client": client,
        **score,
    }
    try:
        write_model(target, FlatModel(module), row, how)
    except OSError as error:
        raise UserError(f"can't write {target}: {error.strerror}; give another file with --out") from None
    return target


def _check_exportable(run: RunRecord, config: RunConfig, client: int, alone: bool) -> None:
    """Raise if a run has no model of this client that could be exported."""
    if run.result is None:
        raise UserError(
            f"{run.path} did not finish, so it has no final models; `fedamp resume {run.path}` continues it"
        )
    if config.setting.name == "federation":
        raise UserError(f"{run.path} is the record of a federation: each silo has its model at home, in run/models")
    clients = len(run.facts.sizes or [])
    if not 0 <= client < clients:
        raise UserError(f"client is {client}; expected a number from 0 to {clients - 1}")
    if config.model.name not in models.MODELS and ":" not in config.model.name:
        raise UserError(
            f"the model of this run was given from Python ({config.model.name}); export it there, with "
            "result.client_model(number).state_dict()"
        )
    if "best_models" not in run.result:
        raise UserError(f"{run.path} was written by an earlier version, which kept no scores; run it again")
    if alone and ALONE not in run.result["models"]:
        raise UserError(f"{run.path} has no models trained alone; run it with --alone, or --method separate")


def _untrained(folder: Path, config: RunConfig, shape: Sequence[int], outputs: int) -> nn.Module:
    """Return the module of a run with its first values; raise if today's code builds another."""
    builder = models.load_builder(config.model.name)
    module = models.build(builder, shape, outputs, config.seed, **config.model.parameters)
    trained = (read_json(folder / INPUTS) or {}).get("code")
    if trained != structure_digest(module, builder):
        raise UserError(
            f"the model {config.model.name} is not the one that was trained in {folder} (its code or its "
            "structure has changed); export it with the code that it had"
        )
    return module


def _taken_home(run: RunRecord, config: RunConfig, client: int, take_home: str | None) -> tuple[Rows, dict[str, Any]]:
    """Return a client's model as one row, and what the JSON says about it: which models it is one of, and its score."""
    assert run.result is not None, "checked before"
    scored = run.result["scored"]
    rule = take_home or run.result.get("take_home", {}).get("rule", SCORED)
    checks.one_of("take_home", rule, (SCORED, CHOSEN, ALONE))
    entry, kept, why = _chosen(run) if rule == CHOSEN else _scored(run.result, ALONE if rule == ALONE else scored)
    stacks, name = read_models(run.path / (MODELS if why == LAST else BEST)), CHOSEN if rule == CHOSEN else entry
    if name not in stacks:
        raise UserError(f"{run.path} has no models named {name!r}; the folder is damaged")
    rounds = run.result["models"][scored]["round"]
    unfinished = "" if run.finished else f" (interrupted after {rounds} of {config.rounds} rounds)"
    score = {
        "metric": run.result["metric"],
        "test": kept["scores"][client],
        "round": kept["round"],
        "why_this_round": why + unfinished,
    }
    return stacks[name][slice(client, client + 1)], {"entry": entry, "score": score}


def _scored(result: Mapping[str, Any], entry: str) -> tuple[str, Mapping[str, Any], str]:
    """Return the entry that the method is scored by, what the result says of its models, and why that round."""
    validated = result["best_models"].get(entry)
    return entry, validated or result["models"][entry], LAST if validated is None else VALIDATED


def _chosen(run: RunRecord) -> tuple[str, Mapping[str, Any], str]:
    """Return the same of what held-out samples chose."""
    choice = (run.result or {}).get("take_home")
    if choice is None:
        raise UserError(
            f"{run.path} has no choice of what clients take home: no samples were held out, or an earlier version "
            "wrote it; run it with --validation, say 0.2, or export with --take-home scored"
        )
    return choice["entry"], choice, POOLED


def write_model(target: Path, model: FlatModel, row: Rows, how: Mapping[str, Any]) -> None:
    """Write a row as a state dict, and beside it a JSON of how to build the module and feed it.

    `layers` are written only if a module built from the contents of the two files, and from nothing else, is shown
    to be the model that is exported.
    """
    tensors = save({name: value.cpu().contiguous() for name, value in model.state_dict(row).items()})
    text = _text(how)
    if how.get("layers") is not None and not _rebuilds(text, tensors, model, row):
        text = _text({**how, "layers": None})
    write_whole(target, tensors)
    write_whole(target.with_suffix(".json"), text)


def _text(how: Mapping[str, Any]) -> bytes:
    return (json.dumps(how, indent=2) + "\n").encode()


def _rebuilds(text: bytes, tensors: bytes, model: FlatModel, row: Rows) -> bool:
    """Return whether the contents of the two files, used as docs/use.md says, give the model."""
    how = json.loads(text)
    original = model.fresh().cpu()
    original.load_state_dict(model.state_dict(row))
    return rebuilds(how["layers"], load(tensors), original, how["input_shape"])


def how_to_build(config: RunConfig, module: nn.Module, shape: Sequence[int], outputs: int) -> dict[str, Any]:
    """Return what is needed to build the module again."""
    return {
        "model": {"name": config.model.name, **config.model.parameters},
        "layers": describe_layers(module),
        "input_shape": list(shape),
        "num_outputs": outputs,
        "method": config.method.name,
    }


def how_to_encode(schema: Schema) -> dict[str, Any]:
    """Return what is needed to turn a silo's rows into inputs: a model sees (x - shift) / scale.

    `inputs` are the model's, in order: a column of numbers, or a word of a column, 1 if a row has it, else 0. Only
    where there are any: `dates` are columns whose numbers are days since 1970-01-01; `fill` is what a missing cell of
    each column becomes, and `indicators` are inputs that are 1 where a cell of their column is missing.
    """
    more = {
        "dates": list(schema.dates),
        "fill": schema.fills,
        "indicators": {each.name: each.column for each in schema.inputs if each.indicator},
    }
    return {
        "task": schema.task,
        "columns": schema.columns,
        "words": {column: list(words) for column, words in schema.categories.items()},
        "inputs": list(schema.features),
        "labels": schema.labels,
        "shift": schema.shift,
        "scale": schema.scale,
        "target_shift": schema.target_shift,
        "target_scale": schema.target_scale,
        **{name: value for name, value in more.items() if value},
    }
