"""`fedamp export`: a client's model, to be used elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

Flag = typer.Option


def export_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    client: Annotated[int, Flag(help="Number of the client.")],
    take_home: Annotated[
        str | None,
        Flag(
            help="scored: the models that the method is scored by; chosen: what held-out samples choose of own, "
            "received and their midpoint; alone: the model trained alone, of a run with --alone. By default what the "
            "run says."
        ),
    ] = None,
    out: Annotated[Path | None, Flag(help="File to write; by default client-N.safetensors in the folder.")] = None,
) -> None:
    """Write a client's model as safetensors, with a JSON file that says how to build it."""
    from fedamp.runs.export import export_client

    print(export_client(folder, client, out, take_home))
