"""Dates and times of day as numbers: days since 1970-01-01, with fractions; with a time zone, in UTC.

2024-01-31, 2024-01-31 08:30, 2024-01-31T08:30:00.5+01:00 and 31.1.2024 are read in any row. 31/1/2024 or 1/31/2024 are
read if the column shows which of the two numbers is the day: one that is above 12.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

DAY = 86_400_000_000  # microseconds

_TIME = r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s?(Z|UTC|[+-]\d{2}:?\d{2})?)?"
_ISO = re.compile(rf"(\d{{4}})([-/])(\d{{1,2}})\2(\d{{1,2}}){_TIME}", re.ASCII)
_DAY_FIRST = re.compile(rf"(\d{{1,2}})(\.)(\d{{1,2}})\.(\d{{4}}){_TIME}", re.ASCII)
_EITHER = re.compile(rf"(\d{{1,2}})([/-])(\d{{1,2}})\2(\d{{4}}){_TIME}", re.ASCII)


def as_days(texts: Sequence[str]) -> tuple[list[float | None], str]:
    """Return the day of each text, None for what is not a date; and what keeps dates from being read, "" if nothing."""
    either = [found for text in texts if (found := _EITHER.fullmatch(text))]
    firsts, seconds = [int(found[1]) for found in either], [int(found[3]) for found in either]
    day_first, month_first = max(firsts, default=0) > 12, max(seconds, default=0) > 12
    days: list[float | None] = []
    zoned = set()
    for text in texts:
        order, found = _order(text, month_first)
        days.append(None if found is None else _day(found, order))
        if found is not None:
            zoned.add(bool(found[9]))
    if either and day_first == month_first:
        return days, "its dates could be day/month or month/day; write them as 2024-01-31"
    if len(zoned) > 1:
        return days, "some of its times have a time zone and others have none; write it in all or in none"
    return days, ""


def _order(text: str, month_first: bool) -> tuple[tuple[int, int, int], re.Match[str] | None]:
    """Return where year, month and day stand in a text, and its parts."""
    if found := _ISO.fullmatch(text):
        return (1, 3, 4), found
    if found := _DAY_FIRST.fullmatch(text):
        return (4, 3, 1), found
    return ((4, 1, 3) if month_first else (4, 3, 1)), _EITHER.fullmatch(text)


def _day(found: re.Match[str], order: tuple[int, int, int]) -> float | None:
    """Return a date as days since 1970; None if there is no such day."""
    try:
        day = datetime(*(int(found[place]) for place in order))  # type: ignore[arg-type]
        if found[5]:
            micros = int((found[8] or "").ljust(6, "0")[:6])
            day = day.replace(hour=int(found[5]), minute=int(found[6]), second=int(found[7] or 0), microsecond=micros)
        if (zone := found[9]) and zone[0] in "+-":
            minutes = int(zone[1:3]) * 60 + int(zone[-2:])
            day -= timedelta(minutes=minutes if zone[0] == "+" else -minutes)
    except (ValueError, OverflowError):
        return None
    return days_of(day)


def days_of(moment: datetime) -> float:
    """Return a moment as days since 1970-01-01.

    >>> days_of(datetime(1970, 1, 2, 12)), days_of(datetime(9999, 12, 31))
    (1.5, 2932896.0)
    """
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    since = moment - datetime(1970, 1, 1)
    return since.days + (since.seconds * 1_000_000 + since.microseconds) / DAY
