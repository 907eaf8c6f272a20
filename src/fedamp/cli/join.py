"""`fedamp join`: a new silo gets a model from a finished run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedamp.cli.run import AsJson
from fedamp.cli.terminal import Bar, interrupted, out, warn

if TYPE_CHECKING:
    from fedamp.records.newcomers import Newcomer
    from fedamp.runs.result import Result

Flag = typer.Option
MEANING = {
    "alone": "its own training alone, for as many steps",
    "received": "u: what the server makes for it from the run's models",
    "own": "w: what its training makes of u",
}


def join_command(
    run: Annotated[Path, typer.Argument(help="Folder of the finished run.")],
    data: Annotated[Path, Flag(help="The newcomer's file, or its folder of files.")],
    name: Annotated[str | None, Flag(help="What the newcomer is called; by default as its file.")] = None,
    rounds: Annotated[int | None, Flag(help="Rounds that the newcomer plays; by default 5.")] = None,
    validation: Annotated[
        float | None, Flag(help="Share of its training samples held out for validation; by default as in the run.")
    ] = None,
    device: Annotated[str | None, Flag(help="auto, cpu or cuda; by default as in the run.")] = None,
    folder: Annotated[Path | None, Flag("--out", help="Folder to write to; by default RUN/newcomers/NAME.")] = None,
    as_json: AsJson = False,
) -> None:
    """Give a new silo a model from a finished run: only the newcomer trains, and only its own data are needed."""
    from fedamp.records.reading import DESCRIPTION
    from fedamp.runs.newcomers.joining import default_name, folder_for, join
    from fedamp.runs.newcomers.newcomer import ROUNDS

    count = ROUNDS if rounds is None else rounds
    target = folder or folder_for(run, default_name(data) if name is None else name)
    bar = Bar(count, "join", "own")
    try:
        with bar:
            result = join(
                run,
                data,
                name=name,
                rounds=count,
                validation=validation,
                device=device,
                out=target,
                observer=bar.advance,
            )
    except KeyboardInterrupt:
        interrupted(target / DESCRIPTION, f"what there is, is in {target}, and the same command continues from there")
    show_joined(result, run, target, as_json)


def show_joined(result: Result, run: Path, folder: Path, as_json: bool) -> None:
    """Show what a newcomer gets, or print it as one line of JSON."""
    if as_json:
        print(json.dumps({"finished": True, **result.to_dict(), "folder": str(folder)}, allow_nan=False))
        return
    assert result.joined is not None, "a newcomer's result"
    for line in in_words(result.joined, str(run)):
        out.print(line, soft_wrap=True)
    out.print(f"record: {folder}    its model: fedamp export {folder} --client 0", soft_wrap=True)
    for each in result.warnings:
        warn(each)


def in_words(newcomer: Newcomer, run: str) -> list[str]:
    """Return what a newcomer gets, a line each: the scores of its models, whom it listens to, and whether it pays."""
    from fedamp.config.metrics import info

    metric = info(newcomer.metric)
    lines = [
        f"{newcomer.name} joins {run}: {newcomer.samples} rows to train on, {newcomer.tested} to test, "
        f"{newcomer.rounds} round{'' if newcomer.rounds == 1 else 's'}"
    ]
    shown = {column: metric.named(getattr(newcomer, column)) for column in (*MEANING, "chosen")}
    width = max(map(len, shown.values()))
    for column, meaning in MEANING.items():
        if column != "received" or newcomer.received is not None:
            lines.append(f"  {column:<9} {shown[column]:>{width}}  {meaning}")
    lines.append(f"  {'chosen':<9} {shown['chosen']:>{width}}  to take home: {newcomer.takes_home}")
    if (listening := newcomer.listening()) is not None:
        lines.append(f"listens to, as of its round {newcomer.round}: {listening}")
    return [*lines, newcomer.verdict]
