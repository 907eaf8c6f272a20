"""New files with the right permissions from their first byte on, some of them filled from templates."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from string import Template

SECRET, PUBLIC, SCRIPT, FOLDER = 0o600, 0o644, 0o755, 0o700


def fill(template: str, target: Path, values: dict[str, str], mode: int = PUBLIC) -> None:
    """Write a template with its $names replaced."""
    text = resources.files("fedamp.federation").joinpath("templates", f"{template}.tmpl").read_text(encoding="utf-8")
    write(target, Template(text).substitute(values).encode(), mode)


def write(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Write a new file with exactly these permissions, replacing an old one."""
    path.unlink(missing_ok=True)
    with os.fdopen(create(path, mode), "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode)  # the umask may have taken some away


def create(path: Path, mode: int) -> int:
    """Open a new file that has its permissions from the first byte on."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
