"""One HTML page that opens offline: what was run, the results, and plots for a closer look."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from fedamp.errors import UserError
from fedamp.records.reading import read_runs
from fedamp.report.alone import against_alone
from fedamp.report.content import content
from fedamp.report.cost import costs
from fedamp.report.figures import figures
from fedamp.report.groups import Block, make_blocks
from fedamp.report.privacy import privacy_section
from fedamp.report.table import Row, rows_of
from fedamp.report.who_helps import who_helps

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPTS = ("charts.js", "curves.js", "clients.js", "client_view.js", "page.js")
"""What draws the page, each using those before it."""


def write_report(folders: list[Path], out: Path | None = None, against: str | None = None) -> Path:
    """Write the page of all runs in the folders, by default as report.html in the first; return its path."""
    if not folders:
        raise UserError("got no folders; give at least one with a run or a comparison")
    blocks = make_blocks([run for folder in folders for run in read_runs(folder)])
    path = folders[0] / "report.html" if out is None else out / "report.html" if out.is_dir() else out
    text = page(blocks, rows_of(blocks, against))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"can't write the report to {path}: {error.strerror}; give another file with --out") from None
    return path


def page(blocks: Sequence[Block], rows: Sequence[Row]) -> str:
    """Return the page's HTML: page.html with all values escaped, and our own style, scripts and data in it."""
    from markupsafe import Markup

    # Markup: files of this package, and JSON that can't end its element, go in as they are. All else is escaped.
    return (
        templates("fedamp.report")
        .get_template("page.html")
        .render(
            content=content(blocks, rows),
            who_helps=who_helps(blocks),
            alone=against_alone(blocks),
            privacy=privacy_section(blocks),
            costs=costs(blocks),
            data=Markup(as_json(figures(blocks))),
            style=Markup(asset("page.css")),
            plotly=Markup(plotly()),
            script=Markup("".join(map(asset, SCRIPTS))),
        )
    )


def templates(*packages: str) -> Environment:
    """Return the templates in these packages; what is put into them is escaped."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=ChoiceLoader([PackageLoader(package, "") for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def asset(name: str, package: str = "fedamp.report") -> str:
    """Return a file of the page: its style, or a script."""
    return (files(package) / name).read_text(encoding="utf-8")


def plotly() -> str:
    """Return the script that draws."""
    return gzip.decompress((files("fedamp.report") / "plotly-cartesian.min.js.gz").read_bytes()).decode("utf-8")


def as_json(value: object) -> str:
    """Return JSON that can be put in a script element: no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
