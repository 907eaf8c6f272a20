"""Log files that stay small: NAME, and the ones before it as NAME.1 to NAME.3.

A file that has grown to 10 MB is renamed, never cut: whoever reads it goes on where it was (`logs.Follower`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

LIMIT = 10_000_000  # bytes of a file
KEPT = 3  # older files
BLOCK = 65_536


def files(path: Path) -> list[Path]:
    """Return a log and the ones before it, the newest first, whether they exist or not."""
    return [path, *(path.with_name(f"{path.name}.{age}") for age in range(1, KEPT + 1))]


def append(path: Path, data: bytes) -> None:
    """Add whole lines to a log; if it would grow beyond the limit, begin a new one. Any number of processes may."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # If another process has moved the file away by now, the line still counts: it goes to the moved one.
        if file.tell() and file.tell() + len(data) > LIMIT and _is(file, path):
            shift(path)
            with path.open("ab") as new:
                new.write(data)
        else:
            file.write(data)
            file.flush()


def shift(path: Path) -> None:
    """Make each log one older; the oldest goes."""
    for newer, older in list(zip(files(path), files(path)[1:], strict=False))[::-1]:
        with contextlib.suppress(FileNotFoundError):
            newer.replace(older)


def _is(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def writable(path: Path) -> Iterator[int]:
    """Give something to write to, for a program's output: a thread of ours carries it to a log of bounded size.

    What is given is closed with the block; the program keeps its own copy, and the thread ends with the program.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    ours, theirs = os.pipe()
    threading.Thread(target=_carry, args=(ours, path), daemon=True).start()
    try:
        yield theirs
    finally:
        os.close(theirs)


def _carry(source: int, path: Path) -> None:
    """Carry all that comes to a log, line by line; a full disk must not stop the program that writes."""
    rest = b""
    with os.fdopen(source, "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            rest += block
            whole = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) > BLOCK else 0)
            _try_to_append(path, rest[:whole])
            rest = rest[whole:]
    _try_to_append(path, rest)


def _try_to_append(path: Path, data: bytes) -> None:
    with contextlib.suppress(OSError):
        if data:
            append(path, data)
