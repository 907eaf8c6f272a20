"""Files that are written whole or not at all, folders held by one process, JSON that is read with a clear error."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedamp.errors import UserError


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is either whole or not there, whenever the machine stops."""
    with whole(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give the name of a file to write to: it becomes `path` when all of it is on the disk, and else is not there."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
    except BaseException:  # a full disk, Ctrl-C
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Return when a file, or a folder's list of them, is on the disk."""
    place = os.open(path, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Hold a folder, and give whether nobody else did; it is let go with the process, however that ends.

    The lock is on the folder itself: no file is left in it.
    """
    place = os.open(folder, os.O_RDONLY)
    try:
        yield _locked(place)
    finally:
        os.close(place)


def _locked(place: int) -> bool:
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, as some that are shared over a network: nobody can hold it
        return True
    return True


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    write_whole(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, or None if there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as error:
        raise UserError(f"{path} can't be read as JSON ({error}); the folder is damaged; give another") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds a {type(value).__name__}, not an object; the folder is damaged; give another")
    return value
