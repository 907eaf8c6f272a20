"""A client's model, taken out of a run folder for use elsewhere: safetensors, and a small JSON of how to build it."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from fedamp import models
from fedamp.config import RunConfig
from fedamp.data.silos.schema import Schema
from fedamp.data.silos.schema_file import read_schema
from fedamp.errors import UserError
from fedamp.files import read_json, write_whole
from fedamp.models.dropout import own_stream
from fedamp.models.fingerprint import structure_digest
from fedamp.models.flat import FlatModel
from fedamp.records.folder import read_models
from fedamp.records.reading import BEST, INPUTS, MODELS, SCHEMA, read_run
from fedamp.rows import Rows
from fedamp.runs.result import LAST, VALIDATED

PROBES = 8
PROBE_SCALES = (0.1, 1.0, 10.0)
"""Random samples on which an exported model has to give what the run's own gives, at each of these sizes."""


def export_client(folder: Path, client: int, out: Path | None = None) -> Path:
    """Write the model that a client takes home to `out`.safetensors and `out`.json, and return the first.

    It is that of the best validated round, or of the last where nothing was held out for validation; the JSON says
    which, and has this very model's own test score.
    """
    run = read_run(folder)
    if run.result is None:
        raise UserError(f"{folder} did not end, so there are no final models; `fedamp resume {folder}` goes on with it")
    config, facts = RunConfig.of(run.config), run.result["facts"]
    if config.setting.name == "federation":
        raise UserError(f"{folder} is the record of a federation: each silo has its model at home, in run/models")
    if not 0 <= client < len(facts["sizes"]):
        raise UserError(f"client is {client}; expected a number from 0 to {len(facts['sizes']) - 1}")
    if config.model.name not in models.MODELS and ":" not in config.model.name:
        raise UserError(
            f"the model of this run was given from Python ({config.model.name}); export it there, with "
            "result.client_model(number).state_dict()"
        )
    if "best_models" not in run.result:
        raise UserError(f"{folder} was written by an earlier version, which kept no scores; run it again")
    entry = run.result["scored"]
    validated = run.result["best_models"].get(entry)
    stacks = read_models(folder / (MODELS if validated is None else BEST))
    if entry not in stacks:
        raise UserError(f"{folder} has no models named {entry!r}; the folder is damaged")
    row = stacks[entry][slice(client, client + 1)]
    kept = validated or run.result["models"][entry]
    builder = models.load_builder(config.model.name)
    shape, outputs = tuple(facts["input_shape"]), facts["num_outputs"]
    module = models.build(builder, shape, outputs, config.seed, **config.model.parameters)
    trained = (read_json(folder / INPUTS) or {}).get("code")
    if trained != structure_digest(module, builder):
        raise UserError(
            f"the model {config.model.name} is not the one that was trained in {folder} (its code or its "
            "structure has changed); export it with the code that it had"
        )
    rounds = run.result["models"][entry]["round"]
    broken_off = "" if run.finished else f" (broken off after {rounds} of {config.rounds} rounds: not finished)"
    target = out or folder / f"client-{client}.safetensors"
    how = {
        **how_to_build(config, module, shape, outputs),
        "shift": facts["shift"] or [0.0],  # samples that were given from Python are taken as they are
        "scale": facts["scale"] or [1.0],
        **(how_to_encode(read_schema(folder / SCHEMA)) if (folder / SCHEMA).exists() else {}),
        "client": client,
        "entry": entry,
        "score": {
            "metric": run.result["metric"],
            "test": kept["scores"][client],
            "round": kept["round"],
            "why_this_round": (LAST if validated is None else VALIDATED) + broken_off,
        },
    }
    try:
        write_model(target, FlatModel(module), row, how)
    except OSError as error:
        raise UserError(f"can't write {target}: {error.strerror}; give another file with --out") from None
    return target


def write_model(target: Path, model: FlatModel, row: Rows, how: Mapping[str, Any]) -> None:
    """Write a row as a state dict, and beside it a JSON of how to build the module and feed it.

    `layers` stand there only where a module that is built from them, and from nothing else than what is in the two
    files, is seen to be the model that is exported.
    """
    tensors = save({name: value.cpu().contiguous() for name, value in model.state_dict(row).items()})
    text = _text(how)
    if how.get("layers") is not None and not _builds(text, tensors, model, row):
        text = _text({**how, "layers": None})
    write_whole(target, tensors)
    write_whole(target.with_suffix(".json"), text)


def _text(how: Mapping[str, Any]) -> bytes:
    return (json.dumps(how, indent=2) + "\n").encode()


def _builds(text: bytes, tensors: bytes, model: FlatModel, row: Rows) -> bool:
    """Return whether the two files, used as docs/use.md says, give the model: in float64, on random inputs."""
    how, stream = json.loads(text), torch.Generator().manual_seed(0)
    with own_stream(0, torch.device("cpu")), torch.no_grad():
        try:
            built = nn.Sequential(*[getattr(nn, name)(**options) for name, options in how["layers"]])
            built.load_state_dict(load(tensors))
            own = model.fresh().cpu()
            own.load_state_dict(model.state_dict(row))
            for scale in PROBE_SCALES:
                x = scale * torch.randn(PROBES, *how["input_shape"], generator=stream, dtype=torch.float64)
                if not _same(*(module.double().eval()(x.clone()) for module in (built, own))):
                    return False
        except Exception:  # a layer that takes words instead of numbers, say: then there is no proof
            return False
    return True


def _same(theirs: Tensor, ours: Tensor) -> bool:
    """Whether two outputs are equal; nan, which proves nothing, never is."""
    return theirs.shape == ours.shape and torch.allclose(theirs, ours, rtol=1e-9, atol=1e-12)


def how_to_build(config: RunConfig, module: nn.Module, shape: Sequence[int], outputs: int) -> dict[str, Any]:
    """Return what is needed to make the module again."""
    return {
        "model": {"name": config.model.name, **config.model.parameters},
        "layers": describe_layers(module),
        "input_shape": list(shape),
        "num_outputs": outputs,
        "method": config.method.name,
    }


def how_to_encode(schema: Schema) -> dict[str, Any]:
    """Return what is needed to turn a silo's rows into inputs: a model sees (x - shift) / scale.

    `inputs` are the model's, in order: a column of numbers, or a word of a column, which is 1 where it stands, else 0.
    """
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
    }


def describe_layers(module: nn.Module) -> list[tuple[str, dict[str, Any]]] | None:
    """Return a plain sequence of torch's own layers as names and options; None where the module is more than that.

    The options are those of each layer's constructor that differ from their defaults. That they are all there is to
    know is for `write_model` to see.
    """
    if type(module) is not nn.Sequential or _changed(module):
        return None
    described = [_describe(layer) for layer in module]
    return None if None in described else [layer for layer in described if layer is not None]


def _describe(layer: nn.Module) -> tuple[str, dict[str, Any]] | None:
    """Return a layer's name and options; None where they do not say all of it, or are no plain values."""
    kind, options = type(layer), {}
    if getattr(nn, kind.__name__, None) is not kind or list(layer.children()) or _changed(layer):
        return None
    for name, parameter in inspect.signature(kind).parameters.items():
        hidden = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if hidden or name in ("device", "dtype"):  # nothing, or what the state dict tells
            continue
        value = _has_bias(layer) if name == "bias" else getattr(layer, name, _Missing)
        if not _is_plain(value):
            return None
        if not _is_default(value, parameter.default):
            options[name] = value
    return kind.__name__, options


class _Missing:
    """In the place of an option that the layer does not keep."""


def _changed(part: nn.Module) -> bool:
    """Whether this very object does something else than its class: it has hooks, or a method of its own."""
    own = any(callable(getattr(type(part), name, None)) for name in vars(part))
    return own or bool(part._forward_hooks or part._forward_pre_hooks)


def _has_bias(layer: nn.Module) -> bool:
    # A norm without weights has no bias either, and another option says so.
    return layer.bias is not None or layer.weight is None


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a value and give it back."""
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _is_default(value: Any, default: Any) -> bool:
    """Whether a constructor makes this value by itself; some make (1, 1) of 1."""
    return bool(value == default) or (isinstance(value, tuple) and all(item == default for item in value))
