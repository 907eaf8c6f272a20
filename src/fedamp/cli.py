"""The command line: parse, call, print. Every mistake of a user is one line and exit code 2."""

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from fedamp import __version__

app = typer.Typer(
    help="Personalized federated learning by attentive message passing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
INTERRUPTED = 130
out = Console()
err = Console(stderr=True)


def _version(asked: bool) -> None:
    if asked:
        print(f"fedamp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


Flag = typer.Option


@app.command("run")
def run_command(
    data: Annotated[str | None, Flag(help="Data set; `fedamp list data`.")] = None,
    setting: Annotated[str | None, Flag(help="How data is split among clients; `fedamp list settings`.")] = None,
    clients: Annotated[int | None, Flag(help="Number of clients.")] = None,
    model: Annotated[str | None, Flag(help="A model's name, or your own as module:function.")] = None,
    method: Annotated[str | None, Flag(help="One of the nine; `fedamp list methods`.")] = None,
    rounds: Annotated[int | None, Flag(help="Communication rounds.")] = None,
    epochs: Annotated[int | None, Flag(help="Local passes over the data in a round.")] = None,
    steps: Annotated[int | None, Flag(help="Or: local minibatches in a round.")] = None,
    batch_size: Annotated[int | None, Flag(help="Samples in a minibatch.")] = None,
    optimizer: Annotated[str | None, Flag(help="adam or sgd; by default the method's own.")] = None,
    lr: Annotated[float | None, Flag(help="Learning rate; by default the method's own.")] = None,
    momentum: Annotated[float | None, Flag(help="Momentum of sgd.")] = None,
    weight_decay: Annotated[float | None, Flag(help="L2 weight decay.")] = None,
    init: Annotated[str | None, Flag(help="First models: common, or each client its own.")] = None,
    absent: Annotated[float | None, Flag(help="Probability that a client is away from a round.")] = None,
    validation: Annotated[float | None, Flag(help="Share of each client's training data held out.")] = None,
    seed: Annotated[int | None, Flag(help="One seed gives one result.")] = None,
    engine: Annotated[
        str | None, Flag(help="auto, stacked (all clients at once) or loop (one at a time).")
    ] = None,
    device: Annotated[str | None, Flag(help="auto, cpu or cuda.")] = None,
    out: Annotated[
        Path | None, Flag(help="Folder to write to; by default runs/ and a name from the description.")
    ] = None,
    config: Annotated[Path | None, Flag(help="TOML file with settings; flags come before it.")] = None,
    set: Annotated[
        list[str] | None, Flag(help="A detail, say method.sigma=25 or setting.share=0.8; can be repeated.")
    ] = None,
    json_: Annotated[bool, Flag("--json", help="End with one line of JSON on stdout.")] = False,
) -> None:
    """Run one experiment and write its record."""
    flags = {name: value for name, value in locals().items() if name not in ("out", "config", "set", "json_")}
    description = describe(config, flags, set or [])
    run_one(description, out, json_)


def describe(config: Path | None, flags: Mapping[str, Any], overrides: list[str]) -> Any:
    """Return the description that a file, flags and `--set` together stand for; later ones win."""
    from fedamp.description import NAMED, Description, Named, apply_overrides, read_toml

    values = read_toml(config) if config else {}
    for name, value in flags.items():
        if value is None:
            continue
        if name in NAMED and name in values and Named.of(values[name]).name == value:
            continue  # the file's parameters of this very choice stay
        values[name] = value
    # One of the two on the command line takes the place of the other in the file.
    if (flags["epochs"] is None) != (flags["steps"] is None):
        values.pop("steps" if flags["steps"] is None else "epochs", None)
    return Description.of(apply_overrides(values, overrides))


def run_one(description: Any, folder: Path | None, as_json: bool) -> None:
    """Run a description, or show what it came to if that run is there already."""
    from fedamp.records import RunFolder

    record = RunFolder(folder or Path("runs") / description.slug)
    done = record.result() if record.description() == description.to_dict() else None
    if done is not None and done.get("finished"):
        if not as_json:
            out.print(f"This very run is there already: {record.path}", soft_wrap=True)
        return _show(done, record.path, as_json)
    from fedamp.assembly import assemble
    from fedamp.experiment import play

    federation = assemble(description)
    if federation.choice.warning and not as_json:
        _warn(federation.choice.warning)
    try:
        with _Bar(description.rounds, description.method.name, federation.method.scored) as bar:
            result = play(description, federation, record, bar.advance)
    except KeyboardInterrupt:
        _fail(f"interrupted; the rounds so far are in {record.path}", INTERRUPTED)
    _show({"finished": True, **result.to_dict()}, record.path, as_json)


class _Bar:
    """A progress bar with the time left and the present mean accuracy; nothing where stdout is no terminal."""

    def __init__(self, rounds: int, name: str, scored: str) -> None:
        self.scored = scored
        self.progress = Progress(
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
        self.task = self.progress.add_task(name, total=rounds, accuracy="")

    def __enter__(self) -> "_Bar":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def advance(self, line: Mapping[str, Any]) -> None:
        scores = line["test"].get(self.scored, {"accuracy": []})
        known = [value for value in scores["accuracy"] if value is not None]
        if known:
            accuracy = f"{100 * sum(known) / len(known):.2f} %"
            self.progress.update(self.task, completed=line["round"], accuracy=accuracy)


def _show(result: Mapping[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**result, "folder": str(folder)}))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("method", result["method"])
    table.add_row("best mean test accuracy", f"{result['bmta']:.2f} % (round {result['best_round']})")
    table.add_row("after the last round", f"{result['last']:.2f} %")
    table.add_row("worst client", f"{result['worst']:.2f} %")
    table.add_row("time", f"{result['seconds']:.1f} s")
    table.add_row("record", str(folder))
    out.print(table)
    for warning in result["warnings"]:
        _warn(warning)


def _warn(text: str) -> None:
    err.print(f"[yellow]warning:[/yellow] {text}", soft_wrap=True, highlight=False)


class Kind(StrEnum):
    """What can be listed."""

    methods = "methods"
    data = "data"
    settings = "settings"
    models = "models"
    attention = "attention"


@app.command("list")
def list_command(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """Show what there is to choose from, with parameters and defaults."""
    from fedamp.listing import entries

    for name, parameters, about in entries(kind.value):
        out.print(f"[bold]{name}[/bold]  {about}", soft_wrap=True, highlight=False)
        if parameters:
            out.print(f"    {parameters}", soft_wrap=True, highlight=False, markup=False)


@app.command("demo")
def demo_command() -> None:
    """Run all nine methods on the handwritten digits and show who gains."""
    from fedamp.demo import demo

    demo(out)


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"fedamp: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def main() -> None:
    """Run the command line."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except ValueError as error:
        _fail(str(error))
    except Exception as error:
        # The option parser's own errors: an unknown flag, a word where a number belongs.
        if not hasattr(error, "format_message"):
            raise
        _fail(error.format_message())
    if code == INTERRUPTED:
        _fail("interrupted", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)
