"""What a person sees at the terminal: progress, results, warnings, and one line for an error."""

import json
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedamp.config.metrics import NOT_FINITE, info
from fedamp.errors import INTERRUPTED, UserError
from fedamp.ranks.launched import is_leader, launched
from fedamp.records.facts import Facts
from fedamp.records.helping import helping, in_a_sentence
from fedamp.records.reading import LINES, read_lines

T = TypeVar("T")

TEAM = "fedamp.ranks.team"
"""What loads torch: whoever has not, has not met other processes."""

# Paths, names and notes are the user's: a folder called runs[1] is not a colour, and :bug: not a picture.
# Of several processes the first one speaks for all.
out = Console(markup=False, emoji=False, highlight=False, quiet=not is_leader())
err = Console(stderr=True, markup=False, emoji=False, highlight=False, quiet=not is_leader())


class Bar:
    """A progress bar with the time left and the current mean score; nothing is shown if stdout is not a terminal."""

    def __init__(self, rounds: int, name: str, scored: str, poisoned: Collection[int] = ()) -> None:
        self.scored, self.poisoned = scored, poisoned
        self.progress = progress()
        self.task = self.progress.add_task(name, total=rounds, score="")

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def advance(self, line: Mapping[str, Any]) -> None:
        """Show a round that was played."""
        if shown := latest_mean(line, self.scored, self.poisoned):
            self.progress.update(self.task, completed=line["round"], score=shown)


class Bars:
    """One display for a whole comparison: how many runs are done, and how far the current one is."""

    def __init__(self, runs: Collection[Any], scored: Mapping[str, str]) -> None:
        self.scored = scored  # for each method, the models that count
        self.progress = progress()
        self.all = self.progress.add_task("runs", total=len(runs), score="")
        self.one = self.progress.add_task("", total=1, score="")

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
            config = run.config
            shown = latest_mean(line, self.scored[config.method.name], config.poisoned)
            done, total = line["round"], config.all_rounds
            self.progress.update(self.one, description=run.name, total=total, completed=done, score=shown)


def progress() -> Progress:
    """Return a display with bars, counts, the current score and the time left; quiet if stdout is not a terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[score]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=out,
        transient=True,
        disable=out.quiet or not out.is_terminal,
    )


def latest_mean(line: Mapping[str, Any], entry: str, poisoned: Collection[int]) -> str:
    """Return the mean score of a round, or of one that clients went on alone, in words; "" if it was not scored."""
    from fedamp.records.take_home import THEN_ALONE  # as in `mean_of`

    return mean_of(line, entry, poisoned) or mean_of(line, THEN_ALONE, poisoned)


def mean_of(line: Mapping[str, Any], entry: str, poisoned: Collection[int] = ()) -> str:
    """Return the mean score of a round over the clients that count, in words; "" if it was not scored."""
    from fedamp.records.summaries import line_mean  # it loads numpy, which a quick command should not wait for

    found = line_mean(line, entry, poisoned)
    if found is None:
        return ""
    mean, metric = found
    return info(metric).named(mean) if math.isfinite(mean) else f"{info(metric).short} {NOT_FINITE}"


def in_words(score: float | None, metric: str) -> str:
    """Return an accuracy in percent, or an error, as text; None is what JSON has for a score that is not finite.

    >>> in_words(97.126, "accuracy"), in_words(0.51239, "rmse"), in_words(None, "rmse")
    ('97.13 %', '0.5124', 'not finite')
    """
    return info(metric).text(score)


def take_home_in_words(home: Mapping[str, Any], metric: str) -> str:
    """Return what held-out samples chose for the clients, with both scores; and whether they do take it home."""
    from fedamp.records.take_home import CHOSEN, WORDS

    taken = "" if home["rule"] == CHOSEN else "; not taken: see --take-home"
    held_out = in_words(home["held_out"][home["entry"]]["score"], metric)
    return (
        f"{WORDS[home['entry']]}, {in_words(home['mean'], metric)} (round {home['round']}; held out {held_out}{taken})"
    )


def other_metrics_in_words(result: Mapping[str, Any]) -> str:
    """Return the usual metrics of what clients take home, on all clients' test samples together; "" if unknown."""
    found = result.get("metrics") or {}
    return ", ".join(info(name).with_name(each["pooled"]) for name, each in found.items() if each["pooled"] is not None)


def show_result(result: Mapping[str, Any], folder: Path, as_json: bool, told: Sequence[str] = ()) -> None:
    """Show the result of a run, or print it as one line of JSON; warnings that have been `told` are not repeated."""
    if not is_leader():
        return
    if as_json:
        print(json.dumps({**result, "folder": str(folder)}, allow_nan=False))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("method", result["method"])
    best, last, worst = (in_words(result[name], result["metric"]) for name in ("best", "last", "worst"))
    what = info(result["metric"]).best_mean
    when = "in any round" if result["best"] is None else f"(round {result['best_round']})"
    table.add_row(what, f"{best} {when}")
    table.add_row("after the last round", last)
    table.add_row("worst client at the best round", worst)
    if home := result.get("take_home"):
        table.add_row("chosen to take home", take_home_in_words(home, result["metric"]))
    if "then_alone" in result:
        from fedamp.records.then_alone import ThenAlone

        table.add_row("gone on alone", ThenAlone.of(result["then_alone"]).in_words)
    facts = Facts.of(result["facts"])
    if text := other_metrics_in_words(result):
        table.add_row("all test samples together", text)
    if facts.positive is not None and info(result["metric"]).by_positive:
        table.add_row("positive class", facts.positive)
    if facts.privacy is not None:
        from fedamp.records.privacy import Promised

        table.add_row("privacy", Promised.of(facts.privacy).words(result.get("epsilon"), facts.names))
    if facts.shared_samples:
        table.add_row("training samples that clients share", str(facts.shared_samples))
    if facts.note:
        table.add_row("data", facts.note)
    if found := helping(read_lines(folder / LINES)):
        table.add_row("who helps whom", in_a_sentence(found, facts.names))
    table.add_row("time", f"{result['seconds']:.1f} s")
    out.print(table)
    if "alone" in result:
        from fedamp.records.beside_alone import BesideAlone

        against = BesideAlone.of(result["alone"]).headline(facts.names)
        out.print(f"against training alone: {against}", soft_wrap=True)
    if "newcomers" in result:
        from fedamp.records.newcomers import Newcomers
        from fedamp.report.newcomers import each_newcomer

        out.print(each_newcomer(Newcomers.of(result["newcomers"])), soft_wrap=True)
    out.print(f"record: {folder}", soft_wrap=True)
    if facts.privacy is not None:
        from fedamp.records.privacy import PROTECTS_NOBODY

        out.print(PROTECTS_NOBODY, soft_wrap=True)
    for warning in result["warnings"]:
        if warning not in told:
            warn(warning)


def warn(text: str) -> None:
    """Show a warning on stderr."""
    err.print(warning(text), soft_wrap=True)


def announce(text: str) -> None:
    """Show on stderr what is about to begin: stdout is for results."""
    err.print(text, soft_wrap=True)


def warning(text: str) -> Text:
    """Return a warning, its first word in colour."""
    return Text.assemble(("warning:", "yellow"), f" {text}")


def fail(message: str, code: int = 2, everywhere: bool = False) -> NoReturn:
    """End with one line on stderr; one that several processes have `everywhere` is the first one's to show."""
    us = launched()
    if is_leader() or not everywhere:
        who = "" if us is None or us.rank == 0 else f" ({us.words})"
        print(f"fedamp{who}: {' '.join(message.split())}", file=sys.stderr, flush=True)
    if us is not None and TEAM in sys.modules:
        from fedamp.ranks.team import has_met, leave

        if has_met():
            leave(code)
    sys.exit(code)


def interrupted(first: Path, told: str, everywhere: bool = False) -> NoReturn:
    """End after Ctrl-C: with what is told of a folder, or, if its `first` file is not there yet, that nothing is."""
    began = first.exists()
    fail(
        f"interrupted; {told}" if began else "interrupted before the first round; the same command begins anew",
        INTERRUPTED,
        everywhere,
    )


def by_all(purpose: str, make: Callable[[], T]) -> T:
    """Return what this process makes for itself, as the others do; a mistake that all of them find is told once."""
    if launched() is None:
        return make()
    from fedamp.ranks import team  # which loads torch: not for a mistake of one process

    return team.by_all(purpose, make)


def say(text: str) -> None:
    """Print a line as it is, at once, even if it goes to a file."""
    print(text, flush=True)


def needs_extra(*more: str) -> None:
    """Raise if the packages of a federation, or more of its extra, are not installed."""
    from importlib.util import find_spec

    if missing := [name for name in ("flwr", "cryptography", *more) if find_spec(name) is None]:
        verb = "is" if len(missing) == 1 else "are"
        raise UserError(f"{' and '.join(missing)} {verb} not installed; run: pip install 'fedamp[federation]'")
