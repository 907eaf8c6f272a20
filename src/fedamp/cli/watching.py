"""Flags of `status` and `watch`, which the server's side and a silo's have in common."""

from pathlib import Path
from typing import Annotated

import typer

Flag = typer.Option
AsJson = Annotated[bool, Flag("--json", help="Print one line of JSON for programs.")]
WatchPort = Annotated[int, Flag("--port", help="Port of 127.0.0.1 to listen on; 0 is any that is free.")]
TokenFile = Annotated[
    Path | None,
    Flag(help="File with a token for Prometheus, which may then ask for /metrics; it is made if it is not there."),
]
