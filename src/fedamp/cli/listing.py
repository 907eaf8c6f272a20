"""What there is to choose from: names, parameters and defaults, as the code itself has them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from fedamp.config.presets import PRESETS, preset
from fedamp.data import DATA
from fedamp.data.partition import SETTINGS
from fedamp.methods import METHODS
from fedamp.methods.attention import ATTENTION
from fedamp.models import MODELS

KINDS: dict[str, Mapping[str, Any]] = {
    "methods": METHODS,
    "data": DATA,
    "settings": SETTINGS,
    "models": MODELS,
    "attention": ATTENTION,
}


def entries(kind: str) -> list[tuple[str, str, str]]:
    """Return name, parameters with defaults, and a line about each choice of a kind."""
    if kind == "presets":
        return [(name, "", _preset(name)) for name in PRESETS]
    return [(name, _parameters(thing), _about(thing)) for name, thing in KINDS[kind].items()]


def _preset(name: str) -> str:
    values = preset(name, "fedamp")
    return f"{values['clients']} clients, {values['model']}, {values['rounds']} rounds"


def _parameters(thing: Callable[..., Any]) -> str:
    if is_dataclass(thing):
        given = [(f.name, f.default) for f in fields(thing) if f.init]
    else:
        signature = inspect.signature(thing).parameters.values()
        given = [(p.name, p.default) for p in signature if p.default is not inspect.Parameter.empty]
    return ", ".join(f"{name}={'?' if default is MISSING else _word(default)}" for name, default in given)


def _word(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _about(thing: object) -> str:
    lines = (inspect.getdoc(thing) or "").splitlines()
    return lines[0] if lines else ""
