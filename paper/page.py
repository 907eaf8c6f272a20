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
from paper.provenance import provenance
from paper.tables import main_table, tables

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
README = ROOT / "README.md"


def page() -> str:
    """Return the text of docs/reproduction.md."""
    text = (Path(__file__).parent / "page.md").read_text(encoding="utf-8")
    return Template(text).substitute(**tables(), **facts(), **provenance())


FOUND = """\
When alpha falls every $falls rounds instead of every 30, and the groups are not known, FedAMP's cloud models reach
**$emnist_no_oracle_received** on EMNIST in $tuning_rounds rounds: more than all of the above but AutoAMP, which had 40
rounds everywhere and nothing tuned. When 5 of 50 clients on FMNIST send flipped models ten times as large, and replies
are not checked (`--replies any`), FedAvg ends at $poisoned_fedavg_received_last, and FedAMP's cloud models at
**$poisoned_fedamp_received_last**: a model that lies far from all others gets no weight."""
BEGIN, END = "<!-- written by python -m paper.page -->\n", "<!-- end -->"


def readme() -> str:
    """Return the README with Table 3 and our best figures filled in."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    found = Template(FOUND).substitute(facts())
    return f"{before}{BEGIN}{main_table('table3', ('mnist', 'fmnist', 'emnist'))}\n\n{found}\n{END}{after}"


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
