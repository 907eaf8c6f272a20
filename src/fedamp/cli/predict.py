"""`fedamp predict`: what a client's model says of new rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedamp.cli.export import Client, Run, TakeHome
from fedamp.cli.terminal import say, warn

if TYPE_CHECKING:
    from fedamp.runs.in_use.predictor import Predictor

Flag = typer.Option
NewRows = Annotated[
    Path, typer.Argument(help="A csv file with the columns that the model learned from; for arrays an npz file with x.")
]
Out = Annotated[
    Path | None,
    Flag("--out", help="File to write, or - for standard output; by default NAME-predictions.csv beside the rows."),
]
Id = Annotated[
    str | None,
    Flag("--id", help="A column that identifies rows, to be copied; it need not be one that the model learned from."),
]
Encoding = Annotated[str | None, Flag(help="Encoding of the file, if it is not utf-8, say cp1252.")]
Force = Annotated[bool, Flag("--force", help="Overwrite the file of predictions if it is there.")]


def predict_command(
    folder: Run,
    data: NewRows,
    client: Client = None,
    take_home: TakeHome = None,
    out: Out = None,
    id: Id = None,
    force: Force = False,
    encoding: Encoding = None,
) -> None:
    """Write labels and probabilities, or values, for new rows, as csv."""
    from fedamp.records.client_names import name_or_number_note
    from fedamp.runs.in_use.loading import load

    run = load(folder)
    number = run.client_number(client)
    if not run.finished:
        played, rounds = run.last_models[run.scored].round, run.config.rounds
        warn(f"{folder} has not finished: {played} of its {rounds} rounds were played; fedamp resume {folder} goes on")
    if note := name_or_number_note(client, run.facts.names, len(run.chosen.models)):
        warn(note)
    write_predictions(run.predictor(number, take_home), data, out, id, force, encoding)


def write_predictions(
    asked: "Predictor", data: Path, out: Path | None, id: str | None, force: bool, encoding: str | None
) -> None:
    """Write predictions, and say what is worth knowing."""
    from fedamp.runs.in_use.predict_file import predict_file

    if out == Path("-"):
        said = asked.predict(data, id, encoding)
        for line in said.warnings:
            warn(line)
        return print(said.to_csv(), end="")
    path, said = predict_file(asked, data, out, id, force, encoding)
    for line in said.warnings:
        warn(line)
    say(str(path))
