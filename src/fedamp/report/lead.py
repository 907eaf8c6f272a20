"""The result of a block in a sentence: who does best, and who can't be told apart from that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedamp.config.metrics import info
from fedamp.errors import UserError
from fedamp.records.beside_alone import LEVEL
from fedamp.report.groups import Block, Group
from fedamp.report.render import best_score
from fedamp.report.table import ALONE, Row, p_between

ALIKE_NOTE = (
    "Bold: the best score, and those that can't be told apart from it: Wilcoxon's signed-rank test over clients, "
    f"two-sided, against the best gives p of {LEVEL:g} or more, or none; nothing is bold if that goes for all."
)


@dataclass(frozen=True)
class Lead:
    """A sentence: "fedamp has the highest mean test accuracy: 97.00 %; fedavg is not told apart from it"."""

    rest: str  # how the sentence goes on; all of it if there is no score
    winner: str = ""
    claim: str = ""
    score: str = ""
    block: str = ""


@dataclass(frozen=True)
class Standings:
    """The rows of a block: those with a finite score, the best, and those that chance may have put below it."""

    rows: Sequence[Row]
    scored: Sequence[Row]
    best: Row | None
    alike: Sequence[Row]  # without the best; the better ones first

    @property
    def bold(self) -> list[Row]:
        """The rows that stand out; none if all would."""
        if self.best is None or len(self.alike) + 1 == len(self.rows):
            return []
        return [self.best, *self.alike]


def standings(block: Block, rows: Sequence[Row]) -> Standings:
    """Return who stands where in a block, whose table has these rows, one for each of its groups."""
    groups = {id(row): group for row, group in zip(rows, block.groups, strict=True)}
    scored = [row for row in rows if row.best is not None and math.isfinite(row.best)]
    if not scored:
        return Standings(rows, [], None, [])
    ranked = sorted(scored, key=lambda row: (-1 if row.higher else 1) * (row.best or 0))
    best = groups[id(ranked[0])]
    return Standings(rows, scored, ranked[0], [row for row in ranked[1:] if not _told_apart(groups[id(row)], best)])


def _told_apart(group: Group, best: Group) -> bool:
    try:
        p, _ = p_between(group, best)
    except UserError:  # other numbers of clients: there is nothing to compare by
        return False
    return p is not None and p < LEVEL


def lead(block: str, stand: Standings) -> Lead:
    """Return the result of a block in a sentence."""
    rows, best = stand.rows, stand.best
    if best is None:
        diverged = any(row.best is not None and math.isinf(row.best) for row in rows)
        return Lead("No method has a finite mean: models diverged." if diverged else "No round has been scored yet.")
    about = info(best.metric)
    unit = f" {about.unit}" if about.unit else ""
    score, mean = f"{best_score(best)}{unit}", f"mean test {about.words}"
    if len(rows) == 1:
        return Lead(" in its best round.", best.method, f"reaches a {mean} of", score, block)
    same = [row for row in stand.scored if row is best or best_score(row) == best_score(best)]
    parts = []
    alone = next((row for row in stand.scored if row.method == ALONE), None)
    if alone is best and len(stand.scored) > 1:
        parts.append("no method that collaborates does better")
    if others := [row.method for row in stand.alike if row not in same]:
        parts.append(_not_told_apart(others, everyone=len(others) + len(same) == len(stand.scored)))
    if alone is not None and alone is not best:
        parts.append(f"training alone reaches {best_score(alone)}{unit}")
    unlike = " The methods were not all trained alike; see the notes." if any(row.training for row in rows) else ""
    return Lead(
        rest=f"{''.join(f'; {part}' for part in parts)}.{unlike}",
        winner=" and ".join(row.method for row in same),
        claim=f"{'have' if len(same) > 1 else 'has'} the {'highest' if best.higher else 'lowest'} {mean}:",
        score=score,
        block=block,
    )


def _not_told_apart(methods: Sequence[str], everyone: bool) -> str:
    """Return in words who may be as good as the best.

    >>> _not_told_apart(["fedavg", "autoamp"], everyone=False)
    'fedavg and autoamp are not told apart from it'
    """
    if everyone and len(methods) > 1:
        return "no other method is told apart from it"
    *most, last = methods
    return f"{', '.join(most)} and {last} are not told apart from it" if most else f"{last} is not told apart from it"
