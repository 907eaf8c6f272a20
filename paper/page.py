"""Write docs/reproduction.md, the README's table, the comparison in docs/methods.md and the figures from results/.

    python -m paper.page [--figures]

Every number comes from a file in results/, or from the paper; a cell that was not run says so. The figures need
matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from string import Template

from paper import peers_page
from paper.facts import facts
from paper.found import found, standing_in_words
from paper.markdown import filled
from paper.provenance import provenance
from paper.tables import short_table, tables

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
README = ROOT / "README.md"


def page() -> str:
    """Return the text of docs/reproduction.md."""
    text = (Path(__file__).parent / "page.md").read_text(encoding="utf-8")
    return Template(text).substitute(**tables(), **facts(), **found(), **provenance())


BEGIN, END = "<!-- written by python -m paper.page -->\n", "<!-- end -->"


def readme() -> str:
    """Return the README with Table 3 and what was found in all three filled in."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = filled(f"AutoAMP against the best other method: {standing_in_words()}")
    return f"{before}{BEGIN}{short_table('table3')}\n\n{lines}\n{END}{after}"


def main() -> None:
    """Write the page, and the figures if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m paper.page", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figures", action="store_true", help="draw the figures too")
    asked = parser.parse_args()
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
    peers_page.main()
    if asked.figures:
        from paper import figures

        figures.draw_all()


if __name__ == "__main__":
    main()
