"""Schemas as JSON files, which travel between silos: written for people, read with distrust."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedamp import checks
from fedamp.data.silos.one_line import brief, shown
from fedamp.data.silos.schema import NEWER, VERSION, Schema
from fedamp.errors import UserError

REMEDY = "make the file again with `fedamp data schema`"
USUAL = {
    **dict.fromkeys(("dropped", "others", "kept", "dates"), ()),
    **{"missing": "refuse", "indicate": False, "missing_cells": {}, "word_counts": {}},
}
"""Fields that only some schemas have, and what they are without."""


def schema_to_json(schema: Schema) -> str:
    """Return a schema as JSON, for people to read and for `schema_from_json`; numbers come back exactly."""
    values = {field.name: getattr(schema, field.name) for field in fields(schema)}
    for name in ("categories", "missing_cells", "word_counts"):
        values[name] = dict(values[name])
    for name, usual in USUAL.items():
        if values[name] == usual:  # a schema without them is the same file as ever, and the same agreement
            del values[name]
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def schema_from_json(text: str) -> Schema:
    """Return the schema of a JSON text; anything missing, unknown or of another type is an error."""
    from fedamp.data.silos.schema_form import schema_of  # here, as it loads pydantic

    values = _parse(text)
    # The version comes first: with another one, other fields are no surprise.
    version = values.get("version")
    if checks.is_whole(version) and version not in (VERSION, NEWER):
        raise UserError(f"field 'version' is {brief(version)}; expected {VERSION} or {NEWER}: update fedamp")
    try:
        return schema_of(values)
    except UserError as error:
        raise UserError(f"{error}; {REMEDY}") from None


def read_schema(path: Path) -> Schema:
    """Return the schema of a file that `write_schema` wrote."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"the schema {shown(path)} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"the schema {shown(path)} is not text in utf-8; {REMEDY}") from error
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


def _parse(text: str) -> dict[str, Any]:
    """Return a JSON object. Not by pydantic: if a field appears twice, it silently takes the last one."""
    try:
        values = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise UserError(f"the schema is not JSON (nested too deeply); {REMEDY}") from None
    except ValueError as error:
        raise UserError(f"the schema is not JSON ({error}); {REMEDY}") from None
    if not isinstance(values, dict):
        raise UserError(f"the schema is {brief(values)}; expected a JSON object: {REMEDY}")
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise UserError("a field appears twice")
    return values


def _no_constant(text: str) -> None:
    raise UserError(f"{text} is not a number")
