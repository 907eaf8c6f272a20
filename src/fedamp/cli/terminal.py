"""What a person sees at the terminal: progress, results, warnings, and one line for a mistake."""

import json
import math
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedamp.errors import UserError

INTERRUPTED = 130

# Paths, names and notes are a user's: a folder called runs[1] is no colour, and :bug: no picture.
out = Console(markup=False, emoji=False, highlight=False)
err = Console(stderr=True, markup=False, emoji=False, highlight=False)


class Bar:
    """A progress bar with the time left and the present mean accuracy; nothing where stdout is no terminal."""

    def __init__(self, rounds: int, name: str, scored: str, poisoned: Collection[int] = ()) -> None:
        self.scored, self.poisoned = scored, poisoned
        self.progress = progress()
        self.task = self.progress.add_task(name, total=rounds, accuracy="")

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def advance(self, line: Mapping[str, Any]) -> None:
        """Show a round that was played."""
        if shown := mean_of(line, self.scored, self.poisoned):
            self.progress.update(self.task, completed=line["round"], accuracy=shown)


class Bars:
    """One display for a whole comparison: how many runs are done, and how far the present one is."""

    def __init__(self, runs: Collection[Any], scored: Mapping[str, str]) -> None:
        self.scored = scored  # of each method, the models that count
        self.progress = progress()
        self.all = self.progress.add_task("runs", total=len(runs), accuracy="")
        self.one = self.progress.add_task("", total=1, accuracy="")

    def __enter__(self) -> "Bars":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def advance(self, number: int, run: Any, line: Mapping[str, Any] | None) -> None:
        """Show a round that was played, or a run that is done."""
        if line is None:
            self.progress.update(self.all, completed=number + 1)
        else:
            told = run.config
            shown = mean_of(line, self.scored[told.method.name], told.poisoned)
            self.progress.update(
                self.one, description=run.name, total=told.rounds, completed=line["round"], accuracy=shown
            )


def progress() -> Progress:
    """Return a display with bars, counts, the present accuracy and the time left; quiet where stdout is no terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )


def mean_of(line: Mapping[str, Any], entry: str, poisoned: Collection[int] = ()) -> str:
    """Return the mean score of a round over the clients that count, in words; nothing where this was not scored."""
    scores = line["test"].get(entry, {})
    metric = "accuracy" if "accuracy" in scores else "rmse"
    counted = [value for number, value in enumerate(scores.get(metric, [])) if number not in poisoned]
    known = [float(value) for value in counted if value is not None]  # "inf" is what a record has for not finite
    if not known:
        return ""
    mean = sum(known) / len(known)
    return in_words(100 * mean, metric) if metric == "accuracy" else f"RMSE {in_words(mean, metric)}"


def in_words(score: float | None, metric: str) -> str:
    """Return an accuracy in percent, or an error; None, which JSON has for what is not finite, is said in words.

    >>> in_words(97.126, "accuracy"), in_words(0.51239, "rmse"), in_words(None, "rmse")
    ('97.13 %', '0.5124', 'not finite')
    """
    from fedamp.records.metrics import NOT_FINITE  # numpy comes with it, which a quick command does not wait for

    if score is None or not math.isfinite(score):
        return NOT_FINITE
    return f"{score:.2f} %" if metric == "accuracy" else f"{score:.4g}"


def show_result(result: Mapping[str, Any], folder: Path, as_json: bool) -> None:
    """Show what a run came to, or print it as one line of JSON."""
    if as_json:
        print(json.dumps({**result, "folder": str(folder)}, allow_nan=False))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("method", result["method"])
    best, last, worst = (in_words(result[name], result["metric"]) for name in ("best", "last", "worst"))
    what = "best mean test accuracy" if result["metric"] == "accuracy" else "lowest mean test error (RMSE)"
    when = "in any round" if result["best"] is None else f"(round {result['best_round']})"
    table.add_row(what, f"{best} {when}")
    table.add_row("after the last round", last)
    table.add_row("worst client at the best round", worst)
    if result["facts"].get("shared_samples"):
        table.add_row("training samples that clients share", str(result["facts"]["shared_samples"]))
    if result["facts"].get("note"):
        table.add_row("data", result["facts"]["note"])
    table.add_row("time", f"{result['seconds']:.1f} s")
    out.print(table)
    out.print(f"record: {folder}", soft_wrap=True)
    for warning in result["warnings"]:
        warn(warning)


def warn(text: str) -> None:
    """Show a warning on stderr."""
    err.print(warning(text), soft_wrap=True)


def warning(text: str) -> Text:
    """Return a warning, its first word in colour."""
    return Text.assemble(("warning:", "yellow"), f" {text}")


def fail(message: str, code: int = 2) -> NoReturn:
    """End with one line on stderr."""
    print(f"fedamp: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def say(text: str) -> None:
    """Print a line as it is, at once, also where it goes to a file."""
    print(text, flush=True)


def needs_extra() -> None:
    """Refuse to go on where the packages of a federation are not installed."""
    from importlib.util import find_spec

    if missing := [name for name in ("flwr", "cryptography") if find_spec(name) is None]:
        raise UserError(f"{' and '.join(missing)} is not installed; install it: pip install 'fedamp[federation]'")
