"""A client's model, taken out of a run folder for use elsewhere: safetensors, and a small JSON of how to build it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from fedamp import models
from fedamp.checkpoints import write_whole
from fedamp.data.schema import Schema
from fedamp.data.schema_json import read_schema
from fedamp.description import Description
from fedamp.errors import UserError
from fedamp.flat import FlatModel
from fedamp.methods import METHODS
from fedamp.reading import BEST, MODELS, SCHEMA, read_run
from fedamp.records import read_models
from fedamp.results import LAST, VALIDATED
from fedamp.rows import Rows

# Of each kind of layer, what its constructor needs to make it again; the names are the attributes' own.
LAYERS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Flatten: (),
    nn.Unflatten: ("dim", "unflattened_size"),
    nn.Linear: ("in_features", "out_features"),
    nn.Conv2d: ("in_channels", "out_channels", "kernel_size", "stride", "padding"),
    nn.MaxPool2d: ("kernel_size",),
    nn.BatchNorm1d: ("num_features",),
    nn.BatchNorm2d: ("num_features",),
    nn.LayerNorm: ("normalized_shape",),
    nn.GroupNorm: ("num_groups", "num_channels"),
    nn.Dropout: ("p",),
    nn.ReLU: (),
    nn.Tanh: (),
    nn.GELU: (),
    nn.Sigmoid: (),
}


def export_client(folder: Path, client: int, out: Path | None = None) -> Path:
    """Write the model that a client takes home to `out`.safetensors and `out`.json, and return the first.

    It is that of the best validated round, or of the last where nothing was held out for validation; the JSON says
    which, and has this very model's own test score.
    """
    run = read_run(folder)
    if run.result is None:
        raise UserError(f"{folder} did not end, so there are no final models; `fedamp resume {folder}` goes on with it")
    description, facts = Description.of(run.description), run.result["facts"]
    if description.setting.name == "federation":
        raise UserError(f"{folder} is the record of a federation: each silo has its model at home, in run/models")
    if not 0 <= client < len(facts["sizes"]):
        raise UserError(f"client is {client}; expected a number from 0 to {len(facts['sizes']) - 1}")
    if description.model.name not in models.MODELS and ":" not in description.model.name:
        raise UserError(
            f"the model of this run was given from Python ({description.model.name}); export it there, with "
            "result.client_model(number).state_dict()"
        )
    entry = METHODS[description.method.name].scored
    validated = run.result["best_models"].get(entry)
    stacks = read_models(folder / (MODELS if validated is None else BEST))
    if entry not in stacks:
        raise UserError(f"{folder} has no models named {entry!r}; the folder is damaged")
    row = stacks[entry][slice(client, client + 1)]
    kept = validated or run.result["models"][entry]
    builder = models.load_builder(description.model.name)
    shape, outputs = tuple(facts["input_shape"]), facts["num_outputs"]
    module = models.build(builder, shape, outputs, description.seed, **description.model.parameters)
    target = out or folder / f"client-{client}.safetensors"
    how = {
        **how_to_build(description, module, shape, outputs),
        "shift": facts["shift"],
        "scale": facts["scale"],
        **(how_to_encode(read_schema(folder / SCHEMA)) if (folder / SCHEMA).exists() else {}),
        "client": client,
        "entry": entry,
        "score": {
            "metric": run.result["metric"],
            "test": kept["scores"][client],
            "round": kept["round"],
            "why_this_round": LAST if validated is None else VALIDATED,
        },
    }
    try:
        write_model(target, FlatModel(module), row, how)
    except OSError as error:
        raise UserError(f"can't write {target}: {error.strerror}; give another file with --out") from None
    return target


def write_model(target: Path, model: FlatModel, row: Rows, how: Mapping[str, Any]) -> None:
    """Write a row as a state dict, and beside it a JSON of how to build the module and feed it."""
    tensors = {name: value.cpu().contiguous() for name, value in model.state_dict(row).items()}
    write_whole(target, save(tensors))
    write_whole(target.with_suffix(".json"), (json.dumps(how, indent=2) + "\n").encode())


def how_to_build(description: Description, module: nn.Module, shape: Sequence[int], outputs: int) -> dict[str, Any]:
    """Return what is needed to make the module again."""
    return {
        "model": {"name": description.model.name, **description.model.parameters},
        "layers": describe_layers(module),
        "input_shape": list(shape),
        "num_outputs": outputs,
        "method": description.method.name,
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
    """Return a plain sequence of torch's own layers as names and options; None where the module is more than that."""
    if type(module) is not nn.Sequential or any(type(layer) not in LAYERS for layer in module):
        return None
    described = []
    for layer in module:
        options = {name: _plain(getattr(layer, name)) for name in LAYERS[type(layer)]}
        if isinstance(layer, nn.Linear | nn.Conv2d) and layer.bias is None:
            options["bias"] = False
        described.append((type(layer).__name__, options))
    return described


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
