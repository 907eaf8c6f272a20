"""`fedamp export`: a client's model, to be used elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

Flag = typer.Option


def export_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    client: Annotated[int, Flag(help="Number of the client.")],
    out: Annotated[Path | None, Flag(help="File to write; by default client-N.safetensors in the folder.")] = None,
    alone: Annotated[bool, Flag("--alone", help="The model that it trained alone, of a run with --alone.")] = False,
) -> None:
    """Write a client's model as safetensors, with a JSON file that says how to build it."""
    from fedamp.runs.export import export_client

    print(export_client(folder, client, out, alone))
