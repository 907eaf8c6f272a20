"""From a run's data and model to the digests that distinguish them from others; see `inputs`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.data.silos.schema_file import schema_to_json
from fedamp.methods import Method
from fedamp.models import load_builder
from fedamp.models.fingerprint import code_digest, is_own, structure_digest
from fedamp.models.flat_model import FlatModel
from fedamp.records.inputs import Inputs
from fedamp.rows import Rows
from fedamp.runs.material import Material
from fedamp.runs.parts import first_models


def inputs_of(
    config: RunConfig,
    material: Material,
    model: nn.Module | Any | None = None,
    method: Method | None = None,
) -> Inputs:
    """Return the digests of a run's inputs; model and method are given if they come from Python."""
    return Inputs(
        data=data_digest(material),
        split=split_digest(material.clients),
        **_model(config, tuple(material.clients.x.shape[1:]), material.num_outputs, model),
        method=own_code(method),
    )


def own_code(method: Method | None) -> str | None:
    """Return a digest of the code of a user's own method; one of this package's is known by its name."""
    return code_digest(type(method)) if method is not None and is_own(type(method).__module__) else None


def split_digest(clients: Clients) -> str:
    """Return a digest of who holds which samples, and for what."""
    return tensors_digest([*clients.train, *clients.test])


def data_digest(material: Material) -> str:
    """Return a digest of the samples and of all that is known about them, whoever holds what."""
    clients: Clients = material.clients
    scaling = [value for value in (clients.shift, clients.scale) if value is not None]
    schema = "" if material.schema is None else schema_to_json(material.schema)
    if material.everyone is not None:  # their schema depends on who is kept out, and so on the seed
        return tensors_digest([], json.dumps([material.everyone, material.task.name, material.num_outputs]))
    known = [schema, material.facts.names, material.task.name, material.num_outputs]
    words = json.dumps(known if material.facts.labels is None else [*known, material.facts.labels])
    return tensors_digest([clients.x, clients.y, *scaling], words)


def _model(config: RunConfig, shape: tuple[int, ...], num_outputs: int, model: Any | None) -> dict[str, str]:
    """Return digests of a model's code and structure, and of its first values."""
    # The first of all clients stands for them: if each has a model of its own, they differ only by the seed.
    alone = replace(config, device="cpu")
    flat, w = first_models(alone, shape, num_outputs, [0], model, torch.device("cpu"))
    builder = None if isinstance(model, nn.Module) else model or load_builder(config.model.name)
    return {"code": structure_digest(flat.module, builder), "model": first_values_digest(flat, w)}


def first_values_digest(flat: FlatModel, w: Rows) -> str:
    """Return a digest of a model's first values, with its constants: frozen parameters and masks are in no row."""
    return tensors_digest([w.params, w.buffers], code_digest(flat.module))


def tensors_digest(tensors: Iterable[Tensor], words: str = "") -> str:
    """Return a digest of words and of tensors: their types, shapes and bytes."""
    total = hashlib.sha256(words.encode())
    for tensor in tensors:
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def slug(config: RunConfig, inputs: Inputs) -> str:
    """Return a folder name: what was run, and a digest of all of it, so that other data get another folder."""
    text = json.dumps([config.to_dict(), inputs.to_dict()], sort_keys=True)
    words = [
        Path(config.data).name,
        config.setting.name,
        config.model.name,
        config.method.name,
        f"seed{config.seed}",
        hashlib.sha256(text.encode()).hexdigest()[:8],
    ]
    return "-".join("".join(c if c.isalnum() or c in "-_." else "-" for c in word) for word in words)
