"""`fedamp export`: a client's model, to be used elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from fedamp.cli.terminal import say, warn
from fedamp.errors import UserError

Flag = typer.Option
Run = Annotated[Path, typer.Argument(help="Folder of a run.")]
Client = Annotated[str | None, Flag(help="The client, by its name or its number; a name comes first.")]
TakeHome = Annotated[
    str | None,
    Flag(
        help="scored: the models that the method is scored by; chosen: what held-out samples choose of own, "
        "received and their midpoint (or what became of it by --then-alone); alone: the model trained alone, of a run "
        "with --alone. By default what the run says."
    ),
]


def export_command(
    folder: Run,
    client: Client = None,
    every: Annotated[bool, Flag("--all", help="Every client's, each in files of its own.")] = False,
    form: Annotated[
        str, Flag("--format", help=r"safetensors, onnx (pip install 'fedamp\[onnx]'), or both.")
    ] = "safetensors",
    take_home: TakeHome = None,
    out: Annotated[
        Path | None, Flag(help="File to write, with --all a folder; by default client-N-NAME in the run's folder.")
    ] = None,
) -> None:
    """Write a client's model as safetensors or ONNX, with a JSON file that says how to build and feed it."""
    from fedamp.records.client_names import name_or_number_note
    from fedamp.runs.in_use.export import export_all
    from fedamp.runs.in_use.loading import load

    if every == (client is not None):
        raise UserError("expected --client NAME or --all, one of them")
    if client is None:
        for path in export_all(folder, out, take_home, form):
            say(str(path))
        return
    run = load(folder)
    if note := name_or_number_note(client, run.facts.names, len(run.chosen.models)):
        warn(note)
    for path in run.export(client, out, take_home, form):
        say(str(path))
