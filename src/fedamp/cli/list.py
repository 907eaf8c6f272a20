"""`fedamp list`: what there is to choose from."""

from typing import Annotated

import typer
from rich.text import Text

from fedamp import checks
from fedamp.cli.terminal import out


def list_command(
    kind: Annotated[str, typer.Argument(help="methods, data, settings, models, attention or presets.")],
) -> None:
    """Show what there is to choose from, with parameters and defaults."""
    from fedamp.cli.listing import KINDS, entries

    checks.one_of("list", kind, [*KINDS, "presets"])
    for name, parameters, about in entries(kind):
        out.print(Text.assemble((name, "bold"), f"  {about}"), soft_wrap=True)
        if parameters:
            out.print(f"    {parameters}", soft_wrap=True)
