"""Checks of a user's input: each error names the value, what was expected, and the choices."""

import difflib
import math
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import Any, TypeGuard

from fedamp.errors import UserError


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, Python's or numpy's; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an int, Python's or numpy's; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Return a value in Python's own types: numpy's numbers as int, float and bool, arrays as lists, at any depth.

    So a configuration is the same, and can be written as JSON, wherever its numbers came from. What is neither
    a number nor a container stays as it is.
    """
    if hasattr(value, "tolist") and hasattr(value, "shape"):  # numpy's, recognised without importing numpy
        return value.tolist()
    if is_whole(value):
        return int(value)
    if is_number(value):
        return float(value)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(each) for each in value)
    return value


def one_of(what: str, value: object, choices: Collection[str]) -> None:
    """Raise unless a word is among the choices; the nearest choice is suggested."""
    if isinstance(value, str) and value in choices:
        return
    near = difflib.get_close_matches(str(value).lower(), choices, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    kind, of, whose = what.partition(" of ")
    raise UserError(f"unknown {kind} {value!r}{of}{whose}{hint}; choose from {', '.join(sorted(choices))}")


def positive(what: str, value: object, *, finite: bool = True) -> None:
    """Raise unless value > 0; infinity passes if `finite` is False."""
    expected = "a finite number above 0" if finite else "a number above 0"
    if not is_number(value) or not value > 0:
        raise UserError(f"{what} is {value!r}; expected {expected}")
    if finite and math.isinf(value):
        raise UserError(f"{what} is {value!r}; expected {expected}")


def not_negative(what: str, value: object) -> None:
    """Raise unless value is finite and >= 0."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise UserError(f"{what} is {value!r}; expected a finite number of 0 or more")


def share(what: str, value: object) -> None:
    """Raise unless 0 <= value <= 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise UserError(f"{what} is {value!r}; expected a number from 0 to 1")


def count(what: str, value: object, *, least: int = 1) -> None:
    """Raise unless value is a whole number of at least `least`."""
    if not is_whole(value) or value < least:
        raise UserError(f"{what} is {value!r}; expected a whole number of {least} or more")


MOST_SEED = 2**64 - 1
"""The largest seed that torch's generators take."""


def seed(what: str, value: object) -> None:
    """Raise unless value is a seed of random numbers: a whole number that torch takes."""
    if not is_whole(value) or not 0 <= value <= MOST_SEED:
        raise UserError(f"{what} is {value!r}; expected a whole number from 0 to 2**64 - 1 ({MOST_SEED})")


def truth(what: str, value: object) -> None:
    """Raise unless value is True or False."""
    if not isinstance(plain(value), bool):
        raise UserError(f"{what} is {value!r}; expected true or false")


def positive_or(what: str, value: object, word: str, *, finite: bool = True) -> None:
    """Raise unless value is a number above 0 or the word."""
    if value == word:
        return
    if isinstance(value, str):
        raise UserError(f"{what} is {value!r}; expected a number above 0 or {word!r}")
    positive(what, value, finite=finite)
