"""All tables by name: the paper's, and those in which all methods are compared."""

from __future__ import annotations

from paper import experiments, peers
from paper.experiments import Cell

NAMES = [*experiments.NAMES, *peers.NAMES]


def table(name: str) -> list[Cell]:
    """Return the cells of a table, in the order in which they are worth running."""
    return peers.table(name) if name in peers.NAMES else experiments.table(name)
