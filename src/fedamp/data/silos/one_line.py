"""Values, lists and paths as they appear in a one-line message: short, and with nothing that would break the line."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from datetime import date, timedelta
from pathlib import Path


def shown(path: Path) -> str:
    """Return a path for a one-line error."""
    return str(path) if str(path).isprintable() else repr(str(path))


def brief(value: object, most: int = 60) -> str:
    """Return a value for a one-line error, cut if it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def listed(values: Iterable[object], most: int = 12) -> str:
    """Return values for a one-line error; of many, the first ones and the count of the others.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown_ones = [brief(value) for value in values]
    more = f" and {len(shown_ones) - most} more" if len(shown_ones) > most else ""
    return (", ".join(shown_ones[:most]) or "none") + more


def differing_names(what: str, expected: Collection[str], found: Collection[str]) -> str:
    """Return in words which names are missing and which are not expected; "" if both are the same.

    >>> differing_names("column", ["age", "sex"], ["age", "size", "ward"])
    "column 'sex' is missing and columns 'size', 'ward' are not expected"
    """
    parts = []
    for names, fault in (
        ([name for name in expected if name not in found], "missing"),
        ([name for name in found if name not in expected], "not expected"),
    ):
        if names:
            noun, verb = (what, "is") if len(names) == 1 else (f"{what}s", "are")
            parts.append(f"{noun} {listed(names)} {verb} {fault}")
    return " and ".join(parts)


def as_date(days: float) -> str:
    """Return days since 1970-01-01 as a date, in any year from 1 to 9999.

    >>> as_date(0.7), as_date(200_000), as_date(1e300)
    ('1970-01-01', '2517-08-01', '1e+300 days after 1970-01-01')
    """
    try:
        return (date(1970, 1, 1) + timedelta(days=math.floor(days))).isoformat()
    except OverflowError:
        return f"{days:.6g} days after 1970-01-01"


def one_line(text: str, most: int = 160) -> str:
    """Return a text from elsewhere, cut if it is long, with nothing in it that would break a line."""
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= most else f"{text[: most - 3]}..."
