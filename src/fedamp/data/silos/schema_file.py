"""Schemas as JSON: written for people, read with distrust, and what differs between two of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedamp.data.silos.read import brief, listed, shown
from fedamp.data.silos.schema import VERSION, Schema, _whole
from fedamp.errors import UserError


def schema_differences(a: Schema, b: Schema) -> list[str]:
    """Return in words what differs between two schemas; none where they are the same."""
    lines = []
    for name in ("task", "label", "input_shape", "pictures", "count", "target_shift", "target_spread", "version"):
        if getattr(a, name) != getattr(b, name):
            lines.append(f"{name} is {getattr(a, name)} in the first and {getattr(b, name)} in the second")
    if (a.columns is None) != (b.columns is None):
        lines.append("one has columns and the other has none")
    lines += _name_differences("columns", a.columns or (), b.columns or ())
    lines += _name_differences("labels", a.labels or (), b.labels or ())
    for column in [*a.categories, *(column for column in b.categories if column not in a.categories)]:
        lines += _name_differences(f"words of {column!r}", a.categories.get(column, ()), b.categories.get(column, ()))
    # Side by side only where both have the same inputs: what else differs is said above.
    if a.input_shape == b.input_shape and a.features == b.features and a.pictures == b.pictures:
        names = a.features or tuple(f"input {i}" for i in range(len(a.shift)))
        for what, ours, theirs in (("shift", a.shift, b.shift), ("spread", a.spread, b.spread)):
            differing = [
                f"{name} {u} and {v}"
                for name, u, v in zip(names if len(ours) > 1 else ("x",), ours, theirs, strict=True)
                if u != v
            ]
            if differing:
                more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
                lines.append(f"{what} differs: {', '.join(differing[:3])}{more}")
    return lines


def schema_to_json(schema: Schema) -> str:
    """Return a schema as JSON, for people to read and for `schema_from_json`; numbers come back exactly."""
    values = {field.name: getattr(schema, field.name) for field in fields(schema)}
    values["categories"] = dict(schema.categories)
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def schema_from_json(text: str) -> Schema:
    """Return the schema of a JSON text; anything missing, unknown or of another type is an error."""
    try:
        values = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError as error:
        raise UserError("the schema is not JSON (nested too deeply); expected what fedamp wrote") from error
    except ValueError as error:
        raise UserError(f"the schema is not JSON ({error}); expected what fedamp wrote") from error
    if not isinstance(values, dict):
        raise UserError(f"the schema is {brief(values)}; expected a JSON object")
    known = [field.name for field in fields(Schema)]
    # The version comes first: with another one, other keys are no surprise.
    if _whole(values.get("version")) and values["version"] != VERSION:
        raise UserError(f"version of the schema is {brief(values['version'])}; expected {VERSION}: update fedamp")
    values.setdefault("label", None)  # it came later
    unknown, missing = [key for key in values if key not in known], [key for key in known if key not in values]
    if unknown or missing:
        raise UserError(
            f"the schema has unknown keys ({listed(unknown)}) or lacks some ({listed(missing)}); "
            f"expected {listed(known)}"
        )
    for key in ("columns", "labels", "input_shape", "shift", "spread"):
        if values[key] is not None or key not in ("columns", "labels"):
            values[key] = _tuple(key, values[key])
    if not isinstance(values["categories"], dict):
        raise UserError(f"categories of the schema are {brief(values['categories'])}; expected words by column")
    values["categories"] = {
        column: _tuple(f"categories[{brief(column)}]", words) for column, words in values["categories"].items()
    }
    schema = Schema(**values)
    # JSON has no way to tell 0 from 0.0 that people keep to.
    return replace(
        schema,
        shift=tuple(map(float, schema.shift)),
        spread=tuple(map(float, schema.spread)),
        target_shift=float(schema.target_shift),
        target_spread=float(schema.target_spread),
    )


def read_schema(path: Path) -> Schema:
    """Return the schema of a file that `write_schema` wrote."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"the schema {shown(path)} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"the schema {shown(path)} is not text in utf-8; expected what fedamp wrote") from error
    try:
        return schema_from_json(text)
    except UserError as error:
        raise UserError(f"{shown(path)}: {error}") from error


def write_schema(path: Path, schema: Schema) -> None:
    """Write a schema to a file."""
    try:
        Path(path).write_bytes(schema_to_json(schema).encode())
    except OSError as error:
        raise UserError(f"the schema {shown(path)} can't be written: {error.strerror or error}") from error


def _name_differences(what: str, ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    lines = []
    first = [name for name in ours if name not in theirs]
    second = [name for name in theirs if name not in ours]
    if first:
        lines.append(f"{what} in the first alone: {listed(first)}")
    if second:
        lines.append(f"{what} in the second alone: {listed(second)}")
    if not lines and tuple(ours) != tuple(theirs):
        lines.append(f"{what} are in another order: {listed(ours)} and {listed(theirs)}")
    return lines


def _tuple(what: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise UserError(f"{what} of the schema is {brief(value)}; expected a list")
    return tuple(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise UserError("a key is there twice")
    return values


def _no_constant(text: str) -> None:
    raise UserError(f"{text} is not a number")
