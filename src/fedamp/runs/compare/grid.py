"""What a comparison tries: the names of `--grid` and `--set`, and which of them are tuned and which make blocks.

lr, model, model.hidden, method.sigma    for every method that has it
fedamp:lr, fedamp:model.hidden           for one method
fedamp.sigma                             the same as fedamp:method.sigma
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fedamp import checks
from fedamp.config import Named, RunConfig
from fedamp.config.run_config import GIVEN, NAMED
from fedamp.config.sources import parse_value, with_model_code
from fedamp.errors import UserError

TUNED = ("model", "epochs", "steps", "batch_size", "optimizer", "lr", "momentum", "weight_decay")
"""Fields that are chosen for each method by validation, as are `method.*` and `model.*`."""

SWEPT = ("setting", "clients", "init", "absent", "label_noise")
"""Fields that change the problem, as does `setting.*`. Nothing is chosen among their values: each makes a block of its
own, with its own table."""

SAY = "say lr=0.01,0.001, model=mlp,logistic, method.sigma=1,10 or fedamp.sigma=1,10"

Having = Mapping[str, Collection[str]]
"""The names of each compared method's hyperparameters."""


@dataclass(frozen=True)
class Axis:
    """The values to try for one field of a configuration, or for one parameter of a named choice."""

    place: str  # "lr", "model.hidden", "method.sigma"
    values: Sequence[Any]
    method: str | None = None  # the only one that it is for

    @property
    def is_swept(self) -> bool:
        """Whether its values make blocks."""
        return self.place.partition(".")[0] in SWEPT


def is_tuned(key: str) -> bool:
    """Whether a key of a flat configuration is one that validation chooses."""
    return key.partition(".")[0] in ("method", "model_code", *TUNED)


def parse_axes(texts: Iterable[str], having: Having, flag: str = "--grid") -> list[Axis]:
    """Return the axes of texts such as `method.sigma=1,10,100`; `--set` has one value where a grid has several."""
    axes = []
    for text in texts:
        name, equals, values = text.partition("=")
        if not (equals and name.strip() and values.strip()):
            raise UserError(f"got {flag} {text!r}; expected NAME=VALUE{',VALUE' if flag == '--grid' else ''}, {SAY}")
        parts = split_values(values) if flag == "--grid" else [values]
        axes.append(axis_of(name.strip(), [parse_value(part.strip()) for part in parts], having))
    return axes


def split_values(text: str) -> list[str]:
    """Return values that commas separate; those inside brackets, braces and quotes belong to a value.

    >>> split_values("[64, 32],[128]"), split_values("adam,sgd")
    (['[64, 32]', '[128]'], ['adam', 'sgd'])
    """
    return re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"|[^,])+", text)


def axis_of(name: str, values: Sequence[Any], having: Having) -> Axis:
    """Return the axis of a name as a user writes it; a wrong name is an error that suggests the nearest."""
    method, colon, place = name.rpartition(":")
    table, dot, knob = place.partition(".")
    if not colon and dot and table in having:
        method, place, table = table, f"method.{knob}", "method"
    if method:
        checks.one_of("method of this comparison", method, having)
    if dot:
        _check_parameter(name, table, knob, having, method)
    else:
        place = table = place.replace("-", "_")
        if any(place in names for names in having.values()):
            raise UserError(f"unknown name {name!r}; a hyperparameter is written method.{place}")
        checks.one_of("name of what to vary", place, [*TUNED, *SWEPT])
    if method and table in SWEPT:
        raise UserError(f"{name} is for {method} alone, but all methods must learn from the same data; leave it out")
    return Axis(place, values, method or None)


def _check_parameter(name: str, table: str, knob: str, having: Having, method: str) -> None:
    """Raise unless a name like `method.sigma` can mean something; models and settings check their own parameters."""
    checks.one_of("part of a name", table, [*NAMED, *having])
    if knob in ("", "name"):
        raise UserError(f"got {name!r}; expected a parameter after the dot, or {table}=VALUE for a {table} by its name")
    if table == "method":
        known = {each for one, names in having.items() if method in ("", one) for each in names}
        checks.one_of(f"hyperparameter of {method or 'these methods'}", knob, known)


def points_of(method: str, axes: Sequence[Axis], having: Having) -> list[dict[str, Any]]:
    """Return the points that a method is tried at, values by place; what is for it alone wins over what is for all."""
    mine: dict[str, Sequence[Any]] = {}
    for axis in sorted(axes, key=lambda axis: axis.method is not None):
        table, _, knob = axis.place.partition(".")
        if axis.method in (None, method) and (table != "method" or knob in having[method]):
            mine[axis.place] = axis.values
    return [dict(zip(mine, values, strict=True)) for values in itertools.product(*mine.values())]


def at_point(config: RunConfig, point: Mapping[str, Any]) -> RunConfig:
    """Return a configuration with the values of a point in their places; a choice by name before its parameters."""
    values = {each.name: getattr(config, each.name) for each in fields(config)}
    for place in sorted(point, key=lambda place: "." in place):
        table, dot, name = place.partition(".")
        if table in ("setting", "clients") and (config.setting.name in ("natural", GIVEN)):
            raise UserError(f"{place} is varied, but the clients bring their own samples; leave it out")
        if dot:
            choice: Named = values[table]
            values[table] = Named(choice.name, {**choice.parameters, name: point[place]})
        elif place not in NAMED or Named.of(point[place], place).name != values[place].name:
            values[place] = point[place]
    if ("epochs" in point) != ("steps" in point):
        values["epochs" if "steps" in point else "steps"] = None
    return RunConfig.of(with_model_code({**values, "model_code": None}))


def in_a_name(point: Mapping[str, Any]) -> list[str]:
    """Return a point as words that may be part of a folder's name."""
    said = {place.removeprefix("method."): value for place, value in point.items()}
    words = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in said.items()]
    return ["".join(c if c.isalnum() or c in "-_.=+" else "_" for c in word) for word in words]
