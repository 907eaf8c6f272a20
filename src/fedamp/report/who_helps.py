"""The page's section "Who helps whom, and why", for methods that say what they found out about their clients."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fedamp.errors import UserError
from fedamp.records.helping import Helping, helping, in_a_sentence
from fedamp.report.content import PageTable, TableLine
from fedamp.report.groups import Block
from fedamp.report.run_scores import Trial, client_names

NOTHING = "–"
OPEN = 12
"""Clients up to which the table is shown at once; of more it can be unfolded."""


@dataclass(frozen=True)
class WhoHelps:
    """What one run found out about its clients."""

    label: str  # method and seed, and the setting if there are several
    sentence: str
    table: PageTable
    opened: bool
    spectrum: str  # JSON, as page.js draws it
    clients: str


def who_helps(blocks: Sequence[Block]) -> list[WhoHelps]:
    """Return a part of the section for each method that says what it found, from its first seed."""
    parts = []
    for block in blocks:
        where = f", {block.label}" if block.label else ""
        for group in block.groups:
            trial, found = next(((each, it) for each in group.trials if (it := read_helping(each))), (None, None))
            if trial is not None and found is not None:
                parts.append(part_of(f"{group.label}, seed {trial.seed}{where}", found, client_names(trial)))
    return parts


def read_helping(trial: Trial) -> Helping | None:
    """Return what a run's method found out about its clients; None if it does not say, or not yet."""
    clients = trial.scores.shape[1]
    try:
        found = helping(trial.record.lines)
        if found is not None and {len(found.self_weight), len(found.effective), len(found.gain)} != {clients}:
            raise ValueError(f"weights and gains of other than {clients} clients")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{trial.record.path} can't be read ({' '.join(repr(error).split())}); the folder is damaged; leave it out"
        ) from None
    return found


def part_of(label: str, found: Helping, names: list[str]) -> WhoHelps:
    """Return the section's part about one run: sentence, table and plots."""
    numbered = names == [f"client {number}" for number in range(len(names))]
    gains = [None if gain is None else 100 * gain for gain in found.gain]
    return WhoHelps(
        label=label,
        # A number stays on one line with its unit.
        sentence=in_a_sentence(found, None if numbered else names).replace(" %", "\N{NO-BREAK SPACE}%"),
        table=_table(found, gains, names),
        opened=len(names) <= OPEN,
        spectrum=json.dumps({"values": found.spectrum, "rank": found.rank}),
        clients=json.dumps({"names": names, "others": found.others, "gain": gains}),
    )


def _table(found: Helping, gains: Sequence[float | None], names: Sequence[str]) -> PageTable:
    columns = zip(names, found.others, found.self_weight, gains, strict=True)
    lines = [
        TableLine([name, _number(others, ".1f"), _number(weight, ".2f"), _number(gain, ".0f")])
        for name, others, weight, gain in columns
    ]
    return PageTable("", ["client", "others it listens to", "weight of its own model", "expected gain, %"], lines)


def _number(value: float | None, digits: str) -> str:
    return NOTHING if value is None else format(value, digits)
