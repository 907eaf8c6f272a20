"""Log files that other programs write: begun afresh, followed line by line, and their ends shown."""

from __future__ import annotations

import os
import re
from pathlib import Path

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
    """Begin a log afresh; the previous one is kept as NAME.before."""
    if path.exists():
        path.replace(path.with_name(f"{path.name}.before"))
    return path


class Follower:
    """Hands on the lines that others append to a file from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = path.stat().st_size if path.exists() else 0
        self.rest = b""

    def lines(self) -> list[str]:
        """Return the whole lines that have come since the last call."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self.place:  # begun afresh
                    self.place, self.rest = 0, b""
                file.seek(self.place)
                new = file.read()
                self.place = file.tell()
        except FileNotFoundError:
            return []
        *whole, self.rest = (self.rest + new).split(b"\n")
        return [line.decode(errors="replace") for line in whole]
