"""Files that are written whole or not at all, and JSON that is read with an error people understand."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedamp.errors import UserError


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is either whole or not there, whenever the machine stops."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # a full disk, Ctrl-C
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
