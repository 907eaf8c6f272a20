"""The program `fedamp`: its subcommands, and how it ends. A user's mistake is one line and exit code 2."""

import re
import sys
from contextlib import suppress
from functools import cache
from typing import Annotated

import typer

from fedamp import __version__
from fedamp.cli.audit import AuditFlags, audit_command
from fedamp.cli.compare import CompareFlags, compare_command
from fedamp.cli.data import data_app
from fedamp.cli.export import export_command
from fedamp.cli.federation import federation_app
from fedamp.cli.join import join_command
from fedamp.cli.list import list_command
from fedamp.cli.predict import predict_command
from fedamp.cli.report import report_command
from fedamp.cli.resume import resume_command
from fedamp.cli.run import RunFlags, run_command
from fedamp.cli.silo import silo_app
from fedamp.cli.terminal import fail
from fedamp.errors import INTERRUPTED, UserError
from fedamp.ranks.launched import SharedError, launched, one_process

app = typer.Typer(
    help="Personalized federated learning by attentive message passing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

TOGETHER = ("run", "compare", "resume")
"""What several processes, started by torchrun, can do together."""

app.command("run", cls=RunFlags)(run_command)
app.command("compare", cls=CompareFlags)(compare_command)
app.command("audit", cls=AuditFlags)(audit_command)
app.command("report")(report_command)
app.command("resume")(resume_command)
app.command("predict")(predict_command)
app.command("export")(export_command)
app.command("join")(join_command)
app.command("list")(list_command)
app.add_typer(data_app, name="data")
app.add_typer(federation_app, name="federation")
app.add_typer(silo_app, name="silo")


def _version(asked: bool) -> None:
    if asked:
        print(f"fedamp {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    # Before flags and data are looked at: whoever finds a mistake there ends, and the others notice.
    _same_for_all()
    command = context.invoked_subcommand
    if command not in TOGETHER:
        one_process(f"fedamp {command}", ", ".join(TOGETHER))


@cache
def _same_for_all() -> bool:
    """Return whether this is one of several processes, which meet here, and all were given the same command."""
    if launched() is None:
        return False
    from fedamp.ranks.team import team  # which loads torch: not for one process's `fedamp --help`

    us = team()
    return us is not None and len(set(map(tuple, us.exchange("the command line", sys.argv[1:])))) == 1


def _once(message: str) -> str:
    """Return a message without sentences that it repeats: typer and click both suggest a command."""
    return " ".join(dict.fromkeys(re.split(r"(?<=[.?]) ", message)))


def _with_number(message: str) -> str:
    """Return a message about a share in percent with the number to write in its place."""
    share = re.search(r"'(\d+\.?\d*) *%' is not a valid float", message)
    return message if share is None else f"{message} Write {float(share[1]) / 100:g}."


def main() -> None:
    """Run the command line."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except UserError as error:
        fail(str(error), everywhere=isinstance(error, SharedError))
    except Exception as error:
        # The option parser's own errors: an unknown flag, a word where a number belongs.
        if not hasattr(error, "format_message"):
            raise
        if not error.format_message():  # help was asked for, and shown
            sys.exit(2)
        same = False
        with suppress(UserError):  # the others may be gone
            same = _same_for_all()  # an unknown command is noticed before they have met: so it is told once, too
        fail(_with_number(_once(error.format_message())), everywhere=same)
    if code == INTERRUPTED:
        fail("interrupted", INTERRUPTED, everywhere=True)
    code = code if isinstance(code, int) else 0
    if launched() is not None:
        from fedamp.ranks.team import leave  # which loads torch: not for `fedamp --help`

        leave(code)
    sys.exit(code)
