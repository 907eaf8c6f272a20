"""Write the tables of parameters in docs/methods.md from the fields of the methods themselves.

    python docs/parameters.py            # after a field has changed

A table stands between `<!-- parameters: KIND NAME -->` and `<!-- end -->`; a test checks that it is up to date.
"""

import re
from pathlib import Path

from fedamp.cli.choices import Parameter, explain

PAGE = Path(__file__).parent / "methods.md"
PLACE = re.compile(r"<!-- parameters: (\S+) (\S+) -->\n.*?<!-- end -->", re.DOTALL)


def table(parameters: list[Parameter]) -> str:
    """Return parameters as a table in Markdown."""
    lines = ["| parameter | default | meaning | values | source |", "|---|---|---|---|---|"]
    for each in parameters:
        values = f"{each.range} ({each.unit})" if each.unit else each.range
        cells = f"`{each.name}`", f"`{each.default}`", each.meaning, values, each.source
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """Return a page with its tables as the code has them."""
    return PLACE.sub(
        lambda at: f"<!-- parameters: {at[1]} {at[2]} -->\n\n{table(explain(at[1], at[2]))}\n\n<!-- end -->", page
    )


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
