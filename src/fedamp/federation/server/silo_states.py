"""The words for a silo that takes part: they are only true while it is connected."""

from __future__ import annotations

PRESENT = ("in", "here")
AWAY = "away"  # it was in or here, and is not connected now
