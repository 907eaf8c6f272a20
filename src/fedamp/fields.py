"""A dataclass field that carries its own explanation: what help texts, lists and docs say about it comes from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

_KEY = "fedamp"


@dataclass(frozen=True)
class About:
    """What there is to know about a field besides its type and its default."""

    meaning: str  # one sentence for people
    unit: str = ""  # of its value, if it has one
    range: str = ""  # which values it may have, in words
    source: str = ""  # where the field or its default comes from: an equation, a table, a measurement
    choices: Sequence[str] = ()  # all values, if they are a few words
    group: str = ""  # the heading that it is listed under


def about(
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    range: str = "",
    source: str = "",
    choices: Sequence[str] = (),
    group: str = "",
) -> Any:
    """Return a dataclass field with a default and an explanation; see `About`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class FedProx:
    ...     mu: float = about(1.0, "Pull towards the global model.", range="0 or more", source="Li et al., eq. 2")
    >>> explained(FedProx)["mu"].range
    '0 or more'
    """
    return field(default=default, metadata={_KEY: About(meaning, unit, range, source, tuple(choices), group)})


def explained(thing: Any) -> dict[str, About]:
    """Return the explanations of those fields of a dataclass that have one, by name."""
    return {each.name: each.metadata[_KEY] for each in fields(thing) if _KEY in each.metadata}


def default_of(each: Field[Any]) -> Any:
    """Return a field's default value; if a function makes it, a new one."""
    if each.default is not MISSING:
        return each.default
    return each.default_factory() if each.default_factory is not MISSING else MISSING


def field_list(kind: type) -> str:
    """Return a dataclass's explained fields, a line each, for its docstring."""
    return "\n".join(f"    {name}: {known.meaning}" for name, known in explained(kind).items())
