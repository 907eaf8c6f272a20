"""Names that become file names: of silos, and of the federation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedamp.errors import UserError


def check_names(names: Sequence[str]) -> None:
    """Refuse names of silos that can't be file names, or are not all different; case does not count."""
    seen: set[str] = set()
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or name.endswith((".zip", ".")):
            raise UserError(
                f"a silo is named {name!r}; expected 1 to 64 letters, digits, dashes, dots and underscores, starting "
                "with a letter or digit and not ending in a dot or .zip, since names become file names"
            )
        if name.lower() in seen:
            raise UserError(f"silo {name!r} is named twice; expected a different name for each silo")
        seen.add(name.lower())


def check_title(name: str) -> None:
    """Refuse a name of a federation that scripts and certificates can't hold."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}", name):
        raise UserError(
            f"the federation is named {name!r}; expected 1 to 64 letters, digits, spaces, dashes, dots and "
            "underscores, starting with a letter or digit; choose one with --name"
        )
