"""`fedamp silo`: a silo's side of a federation over real machines."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fedamp.cli.terminal import fail, needs_extra, out, say
from fedamp.cli.watching import AsJson, TokenFile, WatchPort

Flag = typer.Option
Bundle = Annotated[Path, typer.Argument(help="The bundle from the federation's operator, unpacked.")]
Data = Annotated[Path, Flag(help="Your data: a csv or npz file, or a folder of them. It stays there.")]

silo_app = typer.Typer(help="A federation over real machines: a silo's side.", no_args_is_help=True)


@silo_app.command("check")
def silo_check(
    bundle: Bundle,
    data: Data,
    offline: Annotated[bool, Flag("--offline", help="Don't contact the server.")] = False,
) -> None:
    """Check everything that can be checked before going online."""
    needs_extra()
    from fedamp.federation.silo import checkup

    faults = 0
    for finding in checkup.check(bundle, data, offline):
        word = ("fault", "red") if finding.fault else ("ok   ", "green")
        out.print(Text.assemble(word, f"  {finding.what:<12}"), end="")
        print(finding.fault or finding.note, flush=True)
        faults += bool(finding.fault)
    if faults:
        fail(f"{'1 fault' if faults == 1 else f'{faults} faults'}: not ready yet")


@silo_app.command("up")
def silo_up(
    bundle: Bundle,
    data: Data,
    alone: Annotated[
        bool,
        Flag(
            "--alone",
            help="Train a model alone beside it, and log whether the federation's is worse. It stays here; a round "
            "takes about twice as long.",
        ),
    ] = False,
) -> None:
    """Take part in the federation until Ctrl-C."""
    needs_extra()
    from fedamp.federation.silo import checkup, connect

    silo_config = checkup.check_quickly(bundle, data)
    connect.up(silo_config, bundle, data, say, alone)


@silo_app.command("status")
def silo_status(bundle: Bundle, as_json: AsJson = False) -> None:
    """Show whether the silo is connected, its last round, and how its own models do."""
    from fedamp.federation.silo.live import in_words
    from fedamp.federation.silo.overview import overview

    found = overview(bundle)
    if as_json:
        return say(json.dumps(found, allow_nan=False))
    for line in in_words(found):
        say(line)


@silo_app.command("watch")
def silo_watch(bundle: Bundle, port: WatchPort = 0, token_file: TokenFile = None) -> None:
    """Serve a live page about this silo alone to this machine, and metrics for Prometheus, until Ctrl-C."""
    needs_extra("prometheus_client")
    from fedamp.federation.silo import live
    from fedamp.federation.watch.page import watch

    watch(live.view(bundle), port, token_file, say)
