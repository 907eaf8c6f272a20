"""Progress of a run that was started from Python: a bar in a terminal, a line that updates in a notebook."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from fedamp.errors import UserError
from fedamp.runs.watching.round_line import RoundLine

Progress = bool | Literal["auto"]
Show = Callable[[RoundLine, str], None]
"""Shows a round that was played; the text is what the run is called."""

PAUSE = 0.2
"""Seconds between two updates of a notebook's line: each is a message to the browser."""


def where(asked: Progress) -> str:
    """Return where progress is shown: `notebook`, `terminal` or `nowhere`."""
    if asked not in (True, False, "auto"):
        raise UserError(f"progress is {asked!r}; expected True, False or 'auto'")
    if asked is False:
        return "nowhere"
    if _in_notebook():
        return "notebook"
    return "terminal" if asked is True or sys.stderr.isatty() else "nowhere"


def _in_notebook() -> bool:
    """Whether a kernel runs this code, so that somebody may see what is displayed."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def shown(asked: Progress, rounds: int) -> Iterator[Show]:
    """Give what shows the rounds of one run, or of several with as many rounds in all."""
    place = where(asked)
    if place == "notebook":
        yield _Line().show
    elif place == "terminal":
        with _bar(rounds) as show:
            yield show
    else:
        yield lambda line, name: None


class _Line:
    """One output of a cell, which is replaced by each newer one."""

    def __init__(self) -> None:
        from IPython.display import display

        show: Any = display  # which has no types
        self.handle: Any = show({"text/plain": "..."}, raw=True, display_id=True)
        self.next = 0.0

    def show(self, line: RoundLine, name: str) -> None:
        """Replace the text, unless that was done a moment ago; the last round is always shown."""
        if line.round < line.rounds and time.monotonic() < self.next:
            return
        self.next = time.monotonic() + PAUSE
        self.handle.update({"text/plain": f"{name}, {line.in_words}"}, raw=True)


@contextlib.contextmanager
def _bar(rounds: int) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=rounds)

        def show(line: RoundLine, name: str) -> None:
            bars.update(task, advance=1, description=f"{name}, {line.in_words}")

        yield show
