"""What a person sees at the terminal: progress, results, warnings, and one line for a mistake."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

INTERRUPTED = 130
out = Console()
err = Console(stderr=True)


class Bar:
    """A progress bar with the time left and the present mean accuracy; nothing where stdout is no terminal."""

    def __init__(self, rounds: int, name: str, scored: str) -> None:
        self.scored = scored
        self.progress = progress()
        self.task = self.progress.add_task(name, total=rounds, accuracy="")

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def advance(self, line: Mapping[str, Any]) -> None:
        """Show a round that was played."""
        if shown := mean_of(line, self.scored):
            self.progress.update(self.task, completed=line["round"], accuracy=shown)


class Bars:
    """One display for a whole comparison: how many runs are done, and how far the present one is."""

    def __init__(self, runs: Any) -> None:
        self.runs = runs
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
            rounds = run.description.rounds
            shown = mean_of(line, "own")
            self.progress.update(self.one, description=run.name, total=rounds, completed=line["round"], accuracy=shown)


def progress() -> Progress:
    """Return a display with bars, counts, the present accuracy and the time left; quiet where stdout is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )


def mean_of(line: Mapping[str, Any], entry: str) -> str:
    """Return the mean score of a round, in words; nothing where this entry was not scored."""
    scores = line["test"].get(entry, {})
    known = [value for value in scores.get("accuracy", scores.get("rmse", [])) if value is not None]
    if not known:
        return ""
    mean = sum(known) / len(known)
    return f"{100 * mean:.2f} %" if "accuracy" in scores else f"RMSE {mean:.4g}"


def show_result(result: Mapping[str, Any], folder: Path, as_json: bool) -> None:
    """Show what a run came to, or print it as one line of JSON."""
    if as_json:
        print(json.dumps({**result, "folder": str(folder)}))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("method", result["method"])
    accuracy = result["metric"] == "accuracy"
    what, unit = ("best mean test accuracy", ".2f} %") if accuracy else ("lowest mean test error (RMSE)", ".4g}")
    show = ("{:" + unit).format
    table.add_row(what, f"{show(result['best'])} (round {result['best_round']})")
    table.add_row("after the last round", show(result["last"]))
    table.add_row("worst client at the best round", show(result["worst"]))
    if result["facts"].get("shared_samples"):
        table.add_row("training samples that clients share", str(result["facts"]["shared_samples"]))
    if result["facts"].get("note"):
        table.add_row("data", result["facts"]["note"])
    table.add_row("time", f"{result['seconds']:.1f} s")
    out.print(table)
    out.print(f"record: {folder}", soft_wrap=True, highlight=False)
    for warning in result["warnings"]:
        warn(warning)


def warn(text: str) -> None:
    """Show a warning on stderr."""
    err.print(f"[yellow]warning:[/yellow] {escape(text)}", soft_wrap=True, highlight=False)


def fail(message: str, code: int = 2) -> NoReturn:
    """End with one line on stderr."""
    print(f"fedamp: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
