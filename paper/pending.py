"""Which runs are still to be done, and how several processes on one machine share them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from paper.all_tables import table
from paper.experiments import Cell
from paper.peers import TRIAL


def missing(tables: Sequence[str], only: str = "") -> list[Cell]:
    """Return the cells without a result that do not wait for tuning, in order; `only`: labels that begin like this.

    A method's trials go with its runs: `only` may have their labels with or without what trials begin with.
    """
    cells = [cell for name in tables for cell in table(name) if not cell.path.exists()]
    wanted = tuple(only.split(","))
    return [
        cell for cell in cells if cell.label.startswith(wanted) or cell.label.removeprefix(TRIAL).startswith(wanted)
    ]


@contextlib.contextmanager
def claimed(cell: Cell) -> Iterator[bool]:
    """Hold a cell unless another process on this machine holds it: the lock ends with the process."""
    name = hashlib.sha256(str(cell.path.resolve()).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"fedamp-{os.getuid()}-{name}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield not cell.path.exists()


def cells_to_run(
    tables: Sequence[str],
    only: str,
    deadline: float,
    failed: Collection[Path] = frozenset(),
    order: Callable[[list[Cell]], list[Cell]] = list,
) -> Iterator[Cell]:
    """Return one cell after the other that no other process has, until none is missing or the time is up.

    A cell is held until the next one is asked for. Those that `failed` so far are not tried again. By default they come
    in the tables' own order.
    """
    while time.monotonic() < deadline:
        # Looked up anew after each run: others run too, and what is tuned decides what comes after it.
        cells = order([cell for cell in missing(tables, only) if cell.path not in failed])
        if not cells:
            return
        for cell in cells:
            with claimed(cell) as mine:
                if mine:
                    yield cell
                    break
        else:  # others are at work on all of them, and something may come after theirs
            time.sleep(5)
