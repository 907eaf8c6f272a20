"""Moments as text that says its time zone, so that a reader elsewhere takes them for the same moment."""

from __future__ import annotations

from datetime import datetime


def now(timespec: str = "seconds") -> str:
    """Return this moment, as in 2026-11-15T12:44:19+01:00; with "milliseconds" so that short times can be told."""
    return datetime.now().astimezone().isoformat(timespec=timespec)


def seconds_of(moment: str | None) -> float | None:
    """Return a moment in seconds since 1970; None for none, or for text that is no moment."""
    try:
        return None if moment is None else datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None
