"""Settings from outside: a TOML file, and single details like `method.sigma=25`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedamp.config.run_config import NAMED, Named, RunConfig
from fedamp.errors import UserError


def read_toml(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"can't read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no valid TOML: {error}") from None


def apply_overrides(values: Mapping[str, Any], overrides: list[str]) -> dict[str, Any]:
    """Return settings with `method.sigma=25` and the like put into their places."""
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
            raise UserError(f"got --set {override!r}; a {table} is chosen by --{table} {text.strip()}")
        choice = Named.of(result.get(table, getattr(RunConfig(), table)))
        result[table] = Named(choice.name, {**choice.parameters, name: parse_value(text.strip())})
    return result


def parse_value(text: str) -> Any:
    """Return a value as TOML reads it: a number, true, a list; anything else is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
