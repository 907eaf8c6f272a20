"""How much memory this process holds, and has held at most; known where Linux's /proc is."""

from __future__ import annotations

import contextlib
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
LOWER_THE_PEAK = "5"  # see proc(5): the peak becomes what is held now


def resident() -> int | None:
    """Return the bytes that this process holds now, or None if the system does not say."""
    return _status("VmRSS")


def peak() -> int | None:
    """Return the most bytes that this process has held since its start, or since `forget_peak`."""
    return _status("VmHWM")


def forget_peak() -> bool:
    """Measure the peak anew from here on; return whether the system can do that."""
    with contextlib.suppress(OSError):
        CLEAR.write_text(LOWER_THE_PEAK)
        return True
    return False


def _status(field: str) -> int | None:
    with contextlib.suppress(OSError, KeyError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines())
        return int(lines[field].split()[0]) * 1024
    return None
