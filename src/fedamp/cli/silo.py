"""`fedamp silo`: a silo's side of a federation over real machines."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fedamp.cli.terminal import fail, needs_extra, out, say, warn

Flag = typer.Option
Bundle = Annotated[Path, typer.Argument(help="The bundle from the federation's operator, unpacked.")]
Data = Annotated[Path, Flag(help="Your data: a csv or npz file, or a folder of them. It stays there.")]

silo_app = typer.Typer(help="A federation over real machines: a silo's side.", no_args_is_help=True)


@silo_app.command("key")
def silo_key(
    silo: Annotated[Path, typer.Argument(help="The silo's name, say hospital-a: a folder of that name holds the key.")],
    renew: Annotated[bool, Flag("--renew", help="Make a key that replaces the one in use.")] = False,
) -> None:
    """Make your silo's key. The private half never leaves the folder; the operator gets the .pub file."""
    needs_extra()
    from fedamp.federation.silo import own_key

    public, fingerprint = own_key.make(silo, renew)
    say(f"hand over to the federation's operator: {public}")
    say(f"then compare by telephone: {fingerprint}")


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
    from fedamp.federation.silo import checkup, connect, server_seen

    silo_config = checkup.check_quickly(bundle, data)
    for text in server_seen.endings(silo_config.server, bundle / "ca.crt"):
        warn(text)
    connect.up(silo_config, bundle, data, say, alone)
