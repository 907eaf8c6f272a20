"""A lock file that says which process holds it: one `up` at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedamp.errors import UserError
from fedamp.federation.processes.waiting import wait_until


@contextlib.contextmanager
def only_one(lock: Path, what: str) -> Iterator[None]:
    """Hold a lock with our process id in it; another holder is an error. The lock goes with the process."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        # More than one try: a `status` that looks at the lock holds it for a moment.
        if not wait_until(lambda: _locked(file, fcntl.LOCK_EX), 0.5, 0.1):
            file.seek(0)
            raise UserError(f"{what} is already running, as process {file.read().strip() or '?'}; stop it first")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def holder(lock: Path) -> int | None:
    """Return the process that holds a lock, or None."""
    try:
        with lock.open() as file:
            if _locked(file, fcntl.LOCK_SH):
                return None
            text = file.read().strip()
            return int(text) if text.isdigit() else None
    except FileNotFoundError:
        return None


def _locked(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
