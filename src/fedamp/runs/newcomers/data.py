"""A newcomer's rows as a finished run's model takes them: by the run's schema or scaling, which stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.data.given.classes import in_known_classes
from fedamp.data.given.samples import given_samples
from fedamp.data.given.tables import is_table, silos_of_tables
from fedamp.data.silos.one_line import listed
from fedamp.data.silos.raw import RawSilo, word_counts
from fedamp.data.silos.read import TABLES, ending, read_silo, wanted_of
from fedamp.data.silos.schema import Schema, open_to_newcomers
from fedamp.data.silos.schema.missing import READING
from fedamp.errors import UserError
from fedamp.records.facts import Facts
from fedamp.runs.material import Material, silo_material
from fedamp.runs.newcomers.finished_run import FinishedRun
from fedamp.training.tasks_and_metrics import CLASSIFICATION, regression

EXPECTED = "expected a file, or (x, y), or (x, y, x_test, y_test)"


def newcomer_material(
    source: FinishedRun, config: RunConfig, data: str | Path | Sequence[Any], name: str, number: int
) -> Material:
    """Return the newcomer as the only client, with its shares held out as the configuration says."""
    if source.schema is not None:
        silo = _silo(source.schema, data, name, config.encoding)
        material = silo_material(config, [silo], open_to_newcomers(source.schema), [number])
        facts, warnings = replace(material.facts, note=None), (*material.warnings, *_unseen(source.schema, silo))
        return replace(material, facts=facts, schema=source.schema, warnings=warnings)
    parts = _arrays(data, name)
    share, labels = None if len(parts) == 4 else config.held_out, source.facts.labels
    if labels is not None:  # by the run's numbers: the newcomer may lack some of its classes
        parts = in_known_classes(repr(name), parts, labels)
    given = given_samples([parts], share, config.seed, [number])
    if labels is None and given.labels is not None:
        raise UserError(
            f"the targets of {name!r} are words, {listed(given.labels)}, but the run's are numbers; expected classes "
            "numbered as there"
        )
    return _scaled(source.facts, given.clients, name)


def _unseen(schema: Schema, silo: RawSilo) -> list[str]:
    """Return a warning for each column in which the newcomer has words that the run never saw."""
    lines = []
    for column, counts in word_counts([silo]).items():
        unseen = {word: rows for word, rows in counts.items() if word and word not in schema.categories.get(column, ())}
        if unseen:
            lines.append(
                f"column {column!r} of {silo.name!r} has words that the run never saw, {listed(unseen, 4)}, in "
                f"{sum(unseen.values())} rows: they count as none of its words. Correct them if they are slips"
            )
    return lines


def _silo(schema: Schema, data: Any, name: str, encoding: str | None) -> RawSilo:
    """Return the rows of a newcomer to silos that agreed on a schema: its columns, and its way with missing cells."""
    missing = READING[schema.missing]
    if isinstance(data, str | Path):
        if schema.columns is None:
            _refuse_table(Path(data))
        columns = schema.columns
        silo = read_silo(Path(data), schema.label, columns=columns, encoding=encoding, missing=missing, agreed=True)
        return replace(silo, name=name)
    if schema.columns is not None and is_table(data):
        wanted = wanted_of(schema.label, (), schema.columns, None, missing, None)
        return silos_of_tables({name: data}, replace(wanted, agreed=True))[0]
    if schema.columns is not None:
        raise UserError(
            f"the run's silos are tables with the columns {', '.join(schema.columns[:4])}"
            f"{' ...' if len(schema.columns) > 4 else ''}; expected a file or a table of its rows, not arrays"
        )
    if len(data) != 2:
        raise UserError(f"the newcomer has {len(data)} parts; the run's silos hold out rows of (x, y)")
    x, y = (np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part) for part in data)
    return RawSilo(name, x, y)


def _refuse_table(path: Path) -> None:
    """Raise if a file, or a file of a folder, is a table: to a run on arrays its columns mean nothing."""
    files = path.iterdir() if path.is_dir() else [path] if path.exists() else []
    if any(ending(each) in TABLES for each in files):
        raise UserError(
            f"{path} is a table, but the run learned from arrays, without names of columns; expected an npz file with "
            "x and y"
        )


def _arrays(data: str | Path | Sequence[Any], name: str) -> Sequence[Any]:
    """Return (x, y), or with test samples of its own (x, y, x_test, y_test)."""
    if isinstance(data, str | Path):
        _refuse_table(Path(data))
        silo = read_silo(Path(data))
        return silo.x, silo.y
    if not isinstance(data, tuple | list) or len(data) not in (2, 4):
        what = f"has {len(data)} parts" if isinstance(data, tuple | list) else f"is of type {type(data).__name__}"
        raise UserError(f"the data of {name!r} {what}; {EXPECTED}")
    return data


def _scaled(facts: Facts, clients: Clients, name: str) -> Material:
    """Return samples of the run's shape and classes, to be scaled as in the run; others are an error."""
    shape, outputs = tuple(facts.input_shape or ()), facts.num_outputs or 1
    if tuple(clients.x.shape[1:]) != shape:
        raise UserError(
            f"the samples of {name!r} have shape {tuple(clients.x.shape[1:])}; expected {shape}, as in the run"
        )
    if facts.task == "regression":
        clients, task = replace(clients, y=clients.y.to(torch.get_default_dtype())), regression()
    else:
        y = clients.y
        wrong = y[(y < 0) | (y >= outputs) | (y != y.round() if y.is_floating_point() else torch.zeros_like(y).bool())]
        if len(wrong):
            raise UserError(
                f"{name!r} has the label {wrong[0].item():g}, which the run does not know; "
                f"expected classes from 0 to {outputs - 1}"
            )
        clients, task = replace(clients, y=y.long()), CLASSIFICATION
    shift, scale = (_per_channel(value, len(shape)) for value in (facts.shift, facts.scale))
    return Material(replace(clients, shift=shift, scale=scale), outputs, task, Facts(names=[name], labels=facts.labels))


def _per_channel(values: Sequence[float] | None, axes: int) -> Tensor | None:
    """Return a recorded shift or scale so that it broadcasts over samples: one number, or one per channel."""
    if values is None:
        return None
    tensor = torch.tensor(values, dtype=torch.get_default_dtype())
    return tensor[0] if len(values) == 1 else tensor.reshape(-1, *[1] * (axes - 1))
