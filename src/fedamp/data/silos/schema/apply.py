"""A silo's rows as a model takes them: encoded and scaled as the schema says."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedamp.data.silos.cells import label_name
from fedamp.data.silos.one_line import listed
from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.schema.definition import Schema
from fedamp.data.silos.schema.layout import layout_difference
from fedamp.data.silos.targets import amounts
from fedamp.errors import UserError

Floats = NDArray[np.float64]


def check_agreed(schema: Schema, task: str, label: str | None) -> None:
    """Refuse a task or a label column that is not the schema's: it would be ignored silently."""
    if task not in ("auto", schema.task):
        raise UserError(f"task is {task!r}, but the schema is for {schema.task}; make the schema again with --task")
    if label not in (None, schema.label) and (schema.label is not None or schema.columns is None):
        has = f"predicts {schema.label!r}" if schema.label else "is for arrays (npz), whose targets are in y"
        raise UserError(f"label is {label!r}, but the schema {has}; leave it out, or make the schema again")


def apply_schema(schema: Schema, silo: RawSilo) -> tuple[Tensor, Tensor]:
    """Return a silo's inputs (N, *input_shape) float32, encoded and scaled, and its targets (N,).

    Targets are class numbers, int64, or for regression numbers that are scaled too, float32.
    """
    of = f"silo {silo.name!r}"
    difference = layout_difference(schema, silo.columns, silo.words, silo.x.shape[1:], silo.x.dtype == np.uint8)
    if difference:
        raise UserError(f"{of} doesn't fit the schema: {difference}")
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinity, which is looked for below
        if schema.pictures:
            x = silo.x.astype(np.float32) / np.float32(255)
        else:
            x = _encode(schema, silo)
            x = ((x - np.array(schema.shift)) / np.array(schema.scale)).astype(np.float32)
        if schema.labels is None:
            target = (amounts(silo) - schema.target_shift) / schema.target_scale
            y = torch.from_numpy(target.astype(np.float32))
        else:
            y = torch.from_numpy(_classes(schema.labels, silo))
    for what, values in (("x", x), ("y", y.numpy())):
        if not np.isfinite(values).all():
            raise UserError(f"{what} of {of} has numbers too far from the schema's mean; expected the same units")
    return torch.from_numpy(x), y


def _encode(schema: Schema, silo: RawSilo) -> Floats:
    """Return a silo's inputs in the schema's order, words as 0 and 1; a rare word that stayed at home is all 0."""
    if schema.columns is None:
        return silo.x.astype(np.float64)
    places = {column: i for i, column in enumerate(silo.numeric)}
    blocks: list[Floats] = []
    for column in schema.columns:
        if column in places:
            blocks.append(silo.x[:, [places[column]]].astype(np.float64))
            continue
        known = {word: place for place, word in enumerate(schema.categories[column])}
        words, inverse = np.unique(silo.words[column], return_inverse=True)
        unknown = [word for word in words.tolist() if word not in known]
        if unknown and column not in schema.others:
            raise UserError(
                f"column {column!r} of silo {silo.name!r} has {listed(unknown)}, unknown to the schema; "
                f"expected {listed(known)}; merge the schemas again, or correct the rows"
            )
        encoded = np.zeros((len(words), len(known)))
        for row, word in enumerate(words.tolist()):
            if word in known:
                encoded[row, known[word]] = 1
        blocks.append(encoded[inverse])
    return np.concatenate(blocks, axis=1)


def _classes(labels: tuple[str, ...], silo: RawSilo) -> NDArray[np.int64]:
    """Return the number of each row's class."""
    values, inverse = np.unique(silo.y, return_inverse=True)
    names = [label_name(value) for value in values.tolist()]
    places = {name: i for i, name in enumerate(labels)}
    unknown = [name for name in names if name not in places]
    if unknown:
        raise UserError(
            f"silo {silo.name!r} has labels {listed(unknown)}, unknown to the schema; "
            f"expected {listed(labels)}; merge the schemas again, or correct the rows"
        )
    return np.array([places[name] for name in names], dtype=np.int64)[inverse]
