"""Write the tables of docs/methods.md from the methods themselves: the overview, and each method's parameters.

    python docs/parameters.py            # after a method or a field has changed

The overview stands between `<!-- overview -->` and `<!-- end -->`, parameters between `<!-- parameters: KIND NAME -->`
and `<!-- end -->`; a test checks that both are up to date.
"""

import re
from pathlib import Path

from fedamp.cli.choices import Parameter, explain
from fedamp.cli.method_words import by_group

PAGE = Path(__file__).parent / "methods.md"
PLACE = re.compile(r"<!-- parameters: (\S+) (\S+) -->\n.*?<!-- end -->", re.DOTALL)
OVERVIEW = re.compile(r"<!-- overview -->\n.*?<!-- end -->", re.DOTALL)


def table(parameters: list[Parameter]) -> str:
    """Return parameters as a table in Markdown."""
    lines = ["| parameter | default | meaning | values | source |", "|---|---|---|---|---|"]
    for each in parameters:
        values = f"{each.range} ({each.unit})" if each.unit else each.range
        lines.append(row(f"`{each.name}`", f"`{each.default}`", each.meaning, values, each.source))
    return "\n".join(lines)


def overview() -> str:
    """Return all methods as a table in Markdown, in the order of their groups."""
    lines = ["| name | group | what it does | when to use it | scored at | optimiser |", "|---|---|---|---|---|---|"]
    for methods in by_group().values():
        for each in methods:
            lines.append(row(f"`{each.name}`", each.group, each.what, each.when, each.scored, each.trained))
    return "\n".join(lines)


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def written(page: str) -> str:
    """Return a page with its tables as the code has them."""
    page = OVERVIEW.sub(lambda _: f"<!-- overview -->\n\n{overview()}\n\n<!-- end -->", page)
    return PLACE.sub(
        lambda at: f"<!-- parameters: {at[1]} {at[2]} -->\n\n{table(explain(at[1], at[2]))}\n\n<!-- end -->", page
    )


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
