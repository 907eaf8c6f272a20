"""What there is to choose from: names, parameters and defaults, as the code itself has them."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from fedamp import checks
from fedamp.config.presets import PRESETS, preset
from fedamp.data import DATA
from fedamp.data.partition import SETTINGS
from fedamp.fields import About, default_of, explained
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


@dataclass(frozen=True)
class Parameter:
    """One parameter of a choice, in words; what is unknown is empty."""

    name: str
    default: str  # "?" if there is none
    meaning: str = ""
    unit: str = ""
    range: str = ""
    source: str = ""


def entries(kind: str) -> list[tuple[str, str, str]]:
    """Return name, parameters with defaults, and a line about each choice of a kind."""
    if kind == "presets":
        return [(name, "", _preset(name)) for name in PRESETS]
    return [(name, _in_line(explain(kind, name)), summary(thing)) for name, thing in KINDS[kind].items()]


def explain(kind: str, name: str) -> list[Parameter]:
    """Return the parameters of one choice, each with its explanation.

    >>> [(each.name, each.default, each.range) for each in explain("methods", "fedprox")]
    [('mu', '0.01', '0 or more')]
    """
    checks.one_of("kind", kind, KINDS)
    checks.one_of(kind, name, KINDS[kind])
    thing = KINDS[kind][name]
    given = _fields(thing) if is_dataclass(thing) else _arguments(thing)
    return [
        Parameter(own, _word(default), about.meaning, about.unit, about.range, about.source)
        for own, default, about in given
    ]


def summary(thing: object) -> str:
    """Return the first line of a thing's docstring; of a function, what it returns."""
    line = (inspect.getdoc(thing) or "").partition("\n")[0]
    returned = line.removeprefix("Return ")
    return line if returned == line else returned[:1].upper() + returned[1:]


def _preset(name: str) -> str:
    values = preset(name, "fedamp")
    return f"{values['clients']} clients, {values['model']}, {values['rounds']} rounds"


def _fields(kind: Any) -> Iterator[tuple[str, Any, About]]:
    """Yield name, default and explanation of a dataclass's fields."""
    known = explained(kind)
    for each in fields(kind):
        if each.init:
            yield each.name, default_of(each), known.get(each.name, About(""))


def _arguments(function: Callable[..., Any]) -> Iterator[tuple[str, Any, About]]:
    """Yield the same for a function's arguments with a default; `Annotated[..., About(...)]` explains one."""
    hints = get_type_hints(function, include_extras=True)
    for each in inspect.signature(function).parameters.values():
        if each.default is not inspect.Parameter.empty:
            notes = getattr(hints.get(each.name), "__metadata__", ())
            yield each.name, each.default, next((note for note in notes if isinstance(note, About)), About(""))


def _in_line(parameters: list[Parameter]) -> str:
    return ", ".join(f"{each.name}={each.default}" for each in parameters)


def _word(value: object) -> str:
    if value is MISSING:
        return "?"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)
