"""Parts of a page that are written from results/: prose of one width, between two markers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 118


def filled(text: str) -> str:
    """Return paragraphs of prose with lines of one width; tables and commands stay as they are."""
    return "\n\n".join(
        part
        if part.startswith(("|", "```"))
        else textwrap.fill(part.replace("\n", " "), WIDTH, break_long_words=False, break_on_hyphens=False)
        for part in text.split("\n\n")
    )


def bullet(text: str) -> str:
    """Return a line of a list, with lines of one width."""
    return textwrap.fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def listed(words: Sequence[str]) -> str:
    """Return words as a sentence has them: "a, b and c"."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def between(page: str, begin: str, block: str, end: str) -> str:
    """Return the page with this block between its markers; all that is outside of them stays."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{block}\n\n{end}{after}"
