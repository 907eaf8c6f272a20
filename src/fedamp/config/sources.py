"""Where a configuration comes from: a preset, a TOML file, flags, single details. Later ones win."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedamp.config import presets
from fedamp.config.run_config import NAMED, Named, RunConfig, check_protected, column_name, is_folder
from fedamp.errors import UserError


def configured(preset: str | None, file: Path | None, flags: Mapping[str, Any], overrides: Sequence[str]) -> RunConfig:
    """Return the configuration that a preset, a TOML file, flags and `--set` give together."""
    given = read_toml(file) if file else {}
    method = flags.get("method") or Named.of(given.get("method", RunConfig.method), "method").name
    values = with_flags({**(presets.preset(preset, method) if preset else {}), **given}, flags)
    check_protected(values)
    return RunConfig.of(with_model_code(with_overrides(with_silos(values), overrides)))


def read_toml(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"can't read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def with_flags(values: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which flags replace what a file says."""
    result = dict(values)
    for name, value in flags.items():
        if name in NAMED and name in result and Named.of(result[name]).name == value:
            continue  # the same choice: its parameters in the file stay
        result[name] = value
    # One of the two on the command line takes the place of the other in the file.
    if ("epochs" in flags) != ("steps" in flags):
        result.pop("epochs" if "steps" in flags else "steps", None)
    return result


def with_silos(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with what a folder of silos decides: who the clients are, and their data."""
    data = values.get("data", "")
    if not (isinstance(data, str) and data and is_folder(data)):
        return dict(values)
    if values.get("clients") is not None:
        raise UserError(f"clients is {values['clients']}, but {data} is a folder of silos: they are the clients")
    if values.get("setting") is not None:
        raise UserError(f"setting is {values['setting']!r}, but {data} is a folder of silos: they are the partition")
    from fedamp.data.silos.read import count_silos

    if not isinstance(values.get("encoding"), str | None):
        raise UserError(f"encoding is {values['encoding']!r}; expected a text")
    silo_column = column_name("silo_column", values.get("silo_column"))
    count = count_silos(Path(data), silo_column, values.get("encoding"))
    return {**values, "setting": "natural", "clients": count}


def with_overrides(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return settings with details such as `method.sigma=25` put into their places."""
    result = dict(values)
    for override in overrides:
        key, equals, text = override.partition("=")
        table, dot, name = key.strip().partition(".")
        if not (equals and dot and name and table in NAMED):
            raise UserError(
                f"got --set {override!r}; expected TABLE.NAME=VALUE with a table from {', '.join(NAMED)}, "
                "say method.sigma=25"
            )
        if name == "name":
            raise UserError(f"got --set {override!r}; choose a {table} with --{table} {text.strip()}")
        choice = Named.of(result.get(table, getattr(RunConfig, table)))
        result[table] = Named(choice.name, {**choice.parameters, name: parse_value(text.strip())})
    return result


def with_model_code(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with a digest of the file that a user's own model comes from."""
    spec = Named.of(values.get("model", RunConfig.model), "model").name
    if ":" not in spec:
        return dict(values)
    from fedamp.models import source_digest

    return {**values, "model_code": source_digest(spec)}


def parse_value(text: str) -> Any:
    """Return a value as TOML reads it: a number, true, a list; anything else is a word.

    >>> parse_value("25"), parse_value("[1, 2]"), parse_value("median")
    (25, [1, 2], 'median')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
