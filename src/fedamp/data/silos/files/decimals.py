"""Whether a mark within a number is a decimal or a thousands mark: what can't be told is refused, never guessed.

1,5 can only be one and a half; 1,234 may be either. A file that is separated by commas has points for decimals. In
other files a comma is a decimal mark if some cell of the file can't be read otherwise. Thousands marks are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedamp.errors import UserError

COMMA = r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?"
WITH_COMMAS = rf"(?:{COMMA}|[+-]?[0-9]+(?:[eE][+-]?[0-9]+)?)"
GROUP_COMMA, GROUP_POINT = (rf"[+-]?[1-9][0-9]{{0,2}}{mark}[0-9]{{3}}" for mark in (",", r"\."))
_COMMA, _GROUP_COMMA, _GROUP_POINT = (re.compile(pattern) for pattern in (COMMA, GROUP_COMMA, GROUP_POINT))
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}([.,'’ \u00a0\u202f])[0-9]{3}(\1[0-9]{3})*(?:[.,][0-9]+)?")


@dataclass(frozen=True)
class Marks:
    """What the numbers of a column tell about decimal marks."""

    comma: bool = False  # some cell has a comma that can only be a decimal mark
    point: bool = False  # some cell has a point that can only be a decimal mark
    doubtful: tuple[str, int] | None = None  # a cell, and its row, whose mark no other of the column makes clear


NO_MARKS = Marks()


def comma_number(text: str) -> float | None:
    """Return the number that a cell holds with a decimal comma, None if it holds none.

    >>> comma_number("-1,5"), comma_number("1.234,5"), comma_number("1,2,3")
    (-1.5, None, None)
    """
    return float(text.replace(",", ".")) if _COMMA.fullmatch(text) else None


def has_thousands(text: str) -> bool:
    """Whether a cell looks like a number with thousands marks.

    >>> has_thousands("1.234,5"), has_thousands("1 234 567"), has_thousands("1,5")
    (True, True, False)
    """
    return _THOUSANDS.fullmatch(text) is not None


def marks_of(texts: Sequence[str], row: Callable[[int], int]) -> Marks:
    """Return what a column's different numbers tell; `row` says in which row one of them stands first."""
    commas = [i for i, text in enumerate(texts) if "," in text]
    points = [i for i, text in enumerate(texts) if "." in text]
    comma = any(not _GROUP_COMMA.fullmatch(texts[i]) for i in commas)
    point = any(not _GROUP_POINT.fullmatch(texts[i]) for i in points)
    # A mark that is clear settles its own kind alone: beside 0,5 a thousand may be written as 1.234.
    unsettled = [i for i in commas if not comma and _GROUP_COMMA.fullmatch(texts[i])]
    unsettled += [i for i in points if (comma or not point) and _GROUP_POINT.fullmatch(texts[i])]
    unclear = next(iter(unsettled), None)
    return Marks(comma, point, None if unclear is None else (texts[unclear], row(unclear)))


def check_marks(columns: Mapping[str, Marks], separator: str, place: Callable[[int], str]) -> None:
    """Refuse a column whose marks are all doubtful, unless the others of its file settle it."""
    comma = any(marks.comma for marks in columns.values())
    point = any(marks.point for marks in columns.values())
    for column, marks in columns.items():
        if marks.doubtful is None:
            continue
        text, row = marks.doubtful
        # An English table with tabs is common; one with semicolons comes from where the comma is the decimal mark.
        settled = comma if "," in text else not comma and (point or separator != ";")
        if not settled:
            plain = text.replace(",", ".")
            raise UserError(
                f"{place(row)}, column {column!r} is {text!r}, which could be {plain} or {plain.replace('.', '')}; "
                f"write it as {plain}0 or without the mark, or leave the column out with --drop"
            )
