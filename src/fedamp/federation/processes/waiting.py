"""Waiting for something to become true, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(true: Callable[[], bool], seconds: float, tick: float = 0.2) -> bool:
    """Wait for something to become true; return whether it did."""
    end_at = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end_at:
        time.sleep(tick)
    return found
