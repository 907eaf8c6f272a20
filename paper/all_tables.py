"""All tables by name: the paper's, those in which all methods are compared, and the curve of privacy."""

from __future__ import annotations

from paper import experiments, peers, privacy
from paper.experiments import Cell

NAMES = [*experiments.NAMES, *peers.NAMES, *privacy.NAMES]


def table(name: str) -> list[Cell]:
    """Return the cells of a table, in the order in which they are worth running."""
    for others in (peers, privacy):
        if name in others.NAMES:
            return others.table(name)
    return experiments.table(name)
