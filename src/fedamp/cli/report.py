"""`fedamp report`: a page, or a table, from records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedamp import checks

if TYPE_CHECKING:
    from fedamp.report.table import Row

Flag = typer.Option
Render = Callable[[Sequence["Row"]], str]


def report_command(
    folders: Annotated[list[Path], typer.Argument(help="Runs or comparisons.")],
    out: Annotated[Path | None, Flag(help="File to write; by default report.html in the first folder.")] = None,
    against: Annotated[
        str | None, Flag(help="The method that p compares the others with; by default what the comparison was given.")
    ] = None,
    format: Annotated[str | None, Flag(help="Print the table instead: text, csv or markdown.")] = None,
) -> None:
    """Write one page that opens offline: the table, the curves, who listens to whom; or print the table."""
    from fedamp.records.against import kept_against
    from fedamp.records.reading import read_runs
    from fedamp.report.page import write_report
    from fedamp.report.table import comparison_table

    against = kept_against(folders) if against is None else against
    if format is None:
        print(write_report(folders, out, against))
        return
    render = renderer(format)
    print(render(comparison_table([record for folder in folders for record in read_runs(folder)], against)))


def renderer(form: str) -> Render:
    """Return what prints a table in this form."""
    from fedamp.report import render

    forms = {"text": render.as_text, "csv": render.as_csv, "markdown": render.as_markdown}
    checks.one_of("format", form, list(forms))
    return forms[form]
