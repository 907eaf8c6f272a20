"""A silo's rows as a model takes them: encoded and scaled as the schema says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedamp.data.silos.cells import label_name
from fedamp.data.silos.one_line import listed
from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.schema.definition import Schema
from fedamp.data.silos.schema.layout import layout_difference
from fedamp.data.silos.schema.missing import check_known, lacking, way_of, with_kinds_of
from fedamp.data.silos.targets import amounts
from fedamp.errors import UserError

Floats = NDArray[np.float32]

MOST_CELLS = 2**30  # of a silo's inputs where a column has MANY_WORDS: 4 GiB, and as much again to join the silos'
MANY_WORDS = 1000


def check_agreed(schema: Schema, task: str, label: str | None, missing: str = "refuse", indicate: bool = False) -> None:
    """Refuse a task, a label column or a way with missing cells that is not the schema's: it would be ignored."""
    check_known(schema)
    if missing not in ("refuse", schema.missing) or (indicate and not schema.indicate):
        which = "indicate_missing is True" if missing in ("refuse", schema.missing) else f"missing is {missing!r}"
        raise UserError(
            f"{which}, but the schema was made with {way_of(schema)}; leave it out, or make the schema again"
        )
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
    difference = layout_difference(
        schema, silo.columns, silo.words, silo.x.shape[1:], silo.x.dtype == np.uint8, silo.dates, silo.unknown
    )
    if difference:
        raise UserError(f"{of} doesn't fit the schema: {difference}")
    check_known(schema)
    if silo.missing and schema.missing != "fill":
        raise UserError(
            f"{of} lacks cells ({lacking(silo)}), and the schema, made with --missing {schema.missing}, does not say "
            "what to fill them with; agree on a schema made with --missing fill, or complete the rows"
        )
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinity, which is looked for below
        if schema.pictures:
            x = silo.x.astype(np.float32) / np.float32(255)
        elif schema.columns is None:
            x = ((silo.x - np.array(schema.shift)) / np.array(schema.scale)).astype(np.float32)
        else:
            x = _encode(schema, with_kinds_of(schema, silo))
        if schema.labels is None:
            target = (amounts(silo) - schema.target_shift) / schema.target_scale
            y = torch.from_numpy(target.astype(np.float32))
        else:
            y = torch.from_numpy(_classes(schema.labels, silo))
    for what, values in (("x", x), ("y", y.numpy())):
        if not np.isfinite(values).all():
            raise UserError(f"{what} of {of} has numbers too far from the schema's mean; expected the same units")
    return torch.from_numpy(x), y


def open_to_newcomers(schema: Schema) -> Schema:
    """Return a schema under which a word that nobody had counts as none of its column's, as a rare one does."""
    return replace(schema, others=tuple(sorted(schema.categories)))


def _encode(schema: Schema, silo: RawSilo) -> Floats:
    """Return a table's inputs (N, F) in the schema's order: numbers scaled, words and indicators as 0 and 1.

    A rare word that stayed at home is all 0. A missing cell is what its column is filled with.
    """
    _check_size(schema, len(silo))
    x = np.zeros((len(silo), *schema.input_shape), np.float32)
    places = {column: i for i, column in enumerate(silo.numeric)}
    start = 0  # of a column's inputs
    for column in schema.columns or ():
        if column in schema.categories:
            words = _word_places(schema, silo, column)
            known = np.flatnonzero(words >= 0)
            x[known, start + words[known]] = 1
            start += len(schema.categories[column])
        else:
            scaled = (silo.x[:, places[column]].astype(np.float64) - schema.shift[start]) / schema.scale[start]
            x[:, start] = np.where(np.isnan(scaled), 0, scaled)  # filled with the mean, which is the shift
            start += 1
        if column in schema.indicated:
            x[:, start] = silo.missing.get(column, 0)
            start += 1
    return x


def _check_size(schema: Schema, rows: int) -> None:
    """Raise if words that name rows, as patients' numbers do, would make inputs that no memory holds."""
    column, words = max(schema.categories.items(), key=lambda each: len(each[1]), default=("", ()))
    inputs = schema.input_shape[0]
    if len(words) > MANY_WORDS and rows * inputs > MOST_CELLS:
        raise UserError(
            f"column {column!r} has {len(words)} words, and each would be an input: {rows} rows of {inputs} inputs are "
            f"{4 * rows * inputs / 2**30:.0f} GiB; leave the column out with --drop {column}"
        )


def _word_places(schema: Schema, silo: RawSilo, column: str) -> NDArray[np.int64]:
    """Return the place (N,) of each row's word among the schema's; -1 for a rare one that stayed at home."""
    words, codes = silo.coded[column]
    known = {word: place for place, word in enumerate(schema.categories[column])}
    if column in schema.fills:
        known[""] = known[str(schema.fills[column])]
    unknown = [word for word in words if word not in known]
    if unknown and column not in schema.others:
        raise UserError(
            f"column {column!r} of silo {silo.name!r} has {listed(unknown)}, unknown to the schema; "
            f"expected {listed(schema.categories[column])}; merge the schemas again, or correct the rows"
        )
    return np.array([known.get(word, -1) for word in words])[codes]


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
