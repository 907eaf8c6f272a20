"""Which method a comparison was asked to compare the others with: the default of whoever shows it later.

It is a wish about the table, not a part of any run, so it has a file of its own beside the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedamp.errors import UserError
from fedamp.files import read_json, write_json

AGAINST = "against.json"


def keep_against(folder: Path, against: str | None) -> None:
    """Write the method down in a comparison's folder; None, the usual one, is what no file stands for."""
    if against is None:
        (folder / AGAINST).unlink(missing_ok=True)
    else:
        write_json(folder / AGAINST, {"against": against})


def kept_against(folders: Iterable[Path]) -> str | None:
    """Return the method that all of these folders were compared with; None if they differ, or do not say."""
    found = {_read(folder) for folder in folders}
    return found.pop() if len(found) == 1 else None


def _read(folder: Path) -> str | None:
    there = read_json(folder / AGAINST)
    if there is None:
        return None
    against = there.get("against")
    if not isinstance(against, str):
        raise UserError(
            f"{folder / AGAINST} names {against!r} as the method; expected a name: give --against, or delete it"
        )
    return against
