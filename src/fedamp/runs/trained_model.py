"""The model of a run that is in a folder, built again by its code, which must be the code that it had."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import nn

from fedamp import models
from fedamp.config import RunConfig
from fedamp.errors import FedampWarning, UserError
from fedamp.files import read_json
from fedamp.models.fingerprint import structure_digest
from fedamp.models.flat_model import FlatModel
from fedamp.records.folder import read_models
from fedamp.records.reading import INPUTS, MODELS, RunRecord
from fedamp.runs.identity import first_values_digest
from fedamp.runs.parts import first_models
from fedamp.training.torch_switches import use_dtype

Model = nn.Module | Callable[..., nn.Module]


def built_by_name(config: RunConfig) -> bool:
    """Return whether a model's name says how to build it: one of fedamp's, or `module:function`."""
    return config.model.name in models.MODELS or ":" in config.model.name


def trained_model(record: RunRecord, config: RunConfig, model: Model | None, call: str) -> FlatModel:
    """Return the model of a run with its first values; raise if there is no code for it, or if it builds another.

    `model` is what was given to the run from Python; `call` tells a person how to give it again.
    """
    name, facts = config.model.name, record.facts
    if model is None and not built_by_name(config):
        raise UserError(f"the model of {record.path} was given from Python ({name}); give it there, with {call}")
    if model is not None and not callable(model):
        raise UserError(f"model is {model!r}; expected a module, or a function that builds one")
    known = read_json(record.path / INPUTS)
    if known is None:
        raise UserError(
            f"{record.path} has no {INPUTS}, by which the model that was trained is known; the folder is damaged: "
            "give a whole copy of it"
        )
    with use_dtype(_trained_dtype(record)):
        outputs, shape = facts.num_outputs or 0, tuple(facts.input_shape or ())
        flat, first = first_models(config, shape, outputs, [0], model, torch.device("cpu"))
    builder = None if isinstance(model, nn.Module) else model or models.load_builder(name)
    if known.get("code") != structure_digest(flat.module, builder):
        given = f"the model {name}" if model is None else f"model={getattr(model, '__name__', type(model).__name__)}"
        cure = "use the code that it had" if model is None else f"give what was given to the run, {name}"
        raise UserError(
            f"{given} is not the one that was trained in {record.path} (its code or its structure has changed); {cure}"
        )
    if flat.constants and known.get("model") != first_values_digest(flat, first):
        warnings.warn(
            f"the model has values that are not trained, and so not kept in {record.path} "
            f"({', '.join(flat.constants[:3])}): they are taken as they are now; give the values that the run had",
            FedampWarning,
            stacklevel=3,
        )
    return flat


def _trained_dtype(record: RunRecord) -> torch.dtype:
    """Return the type of numbers that a run was trained in: that of its models."""
    stacks = read_models(record.path / MODELS).values()
    return next((rows.params.dtype for rows in stacks), torch.get_default_dtype())
