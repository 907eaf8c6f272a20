"""Log files that other programs write: begun afresh, followed line by line, and their ends shown."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedamp.federation.processes import rotation

HEAD = 64  # bytes by which a file is recognised
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def tail(path: Path, lines: int = 20) -> str:
    """Return a file's last lines; "" if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 20_000))
            text = COLOUR.sub("", file.read().decode(errors="replace"))
            return "\n".join(text.splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def begin_log(path: Path) -> Path:
    """Begin a log afresh; the previous ones are kept as NAME.1 and so on."""
    if path.exists():
        rotation.shift(path)
    return path


@dataclass(frozen=True)
class Place:
    """How far a file has been read, and how it begins: a new file may have the number (inode) of a deleted one."""

    at: int = 0
    head: bytes = b""

    @classmethod
    def of(cls, file: IO[bytes], at: int) -> Place:
        """Return a place in a file."""
        file.seek(0)
        return cls(at, file.read(min(at, HEAD)))

    def is_in(self, file: IO[bytes]) -> bool:
        """Return whether a file is the one that was read so far: not begun afresh, nor another."""
        return os.fstat(file.fileno()).st_size >= self.at and Place.of(file, self.at) == self


class Follower:
    """Hands on the lines that others append to a log from now on, each once, though the log may be rotated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rest = b""
        with contextlib.ExitStack() as stack:
            found = self._open(stack)
            self.places = {inode: Place.of(file, os.fstat(file.fileno()).st_size) for inode, file in found.items()}

    def lines(self) -> list[str]:
        """Return the whole lines that have come since the last call."""
        new, places = b"", {}
        with contextlib.ExitStack() as stack:
            found = self._open(stack)
            known = {i: place for i, place in self.places.items() if i in found and place.is_in(found[i])}
            if list(known)[-1:] != list(self.places)[-1:]:  # the newest is gone, with the rest of its last line
                self.rest = b""
            for inode, file in found.items():
                file.seek(known.get(inode, Place()).at)
                new += file.read()
                places[inode] = Place.of(file, file.tell())
        self.places = places
        *whole, self.rest = (self.rest + new).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def _open(self, stack: contextlib.ExitStack) -> dict[int, IO[bytes]]:
        """Open the log and the ones before it; return them by inode, the oldest first."""
        found: dict[int, IO[bytes]] = {}
        # The newest first: one that is renamed meanwhile is met a second time, and not missed.
        for path in rotation.files(self.path):
            with contextlib.suppress(FileNotFoundError):
                file = stack.enter_context(path.open("rb"))
                found.setdefault(os.fstat(file.fileno()).st_ino, file)
        return dict(reversed(found.items()))
