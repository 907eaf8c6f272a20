"""What of a silo's rows may leave it with its schema, and what that would be, for its owner to read first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from fedamp import checks
from fedamp.data.silos.cells import label_name
from fedamp.data.silos.identifiers import silo_suspects
from fedamp.data.silos.one_line import as_date, brief, listed
from fedamp.data.silos.raw import RawSilo, word_counts
from fedamp.data.silos.schema import Schema, make_schema
from fedamp.data.silos.targets import guess_task
from fedamp.errors import UserError

MIN_COUNT = 5
"""Rows that must share a word before it travels: a rarer one may point at a person. Tables of patients are commonly
published with such a threshold for their smallest cells. A silo sends no model of fewer samples either."""
MOST = 30  # words of a column that a listing shows


def described(
    silos: Sequence[RawSilo],
    task: str,
    min_count: int | None,
    drop: Collection[str],
    keep: Collection[str],
    missing: str = "refuse",
    indicate: bool = False,
) -> Schema:
    """Return the schema of silos that may leave the house; what should not is an error that says all of it at once."""
    min_count = MIN_COUNT if min_count is None else min_count
    checks.count("min_count", min_count)
    columns = {column for silo in silos for column in (*(silo.columns or ()), *silo.dropped)}
    labels = {silo.label or "y" for silo in silos}
    if both := [column for column in drop if column in labels]:
        raise UserError(f"column {both[0]!r} is to be dropped, but it is the one to predict; leave it out of --drop")
    for column in drop:
        checks.one_of("column to drop", column, columns)
    for column in keep:
        checks.one_of("column to keep", column, columns | labels)
    asked = guess_task([silo.y for silo in silos]) if task == "auto" else task
    if found := faults(silos, asked, min_count, keep):
        raise UserError("; ".join(found))
    return replace(make_schema(silos, task, min_count, missing, indicate), kept=tuple(sorted({*keep} & columns)))


def faults(silos: Sequence[RawSilo], task: str, min_count: int, keep: Collection[str]) -> list[str]:
    """Return in words why a schema of these rows should not leave as it is, each with its cure; none if it may."""
    rows = sum(len(silo) for silo in silos)
    found = []
    if suspects := {column: why for column, why in silo_suspects(silos, min_count).items() if column not in keep}:
        which = ", ".join(f"{column!r} ({why})" for column, why in suspects.items())
        names = ",".join(suspects)
        found.append(
            f"these columns look like identifiers of people: {which}; leave them out with --drop {names}, or say with "
            f"--keep {names} that they may travel"
        )
    emptied = [
        column
        for column, counts in word_counts(silos).items()
        if max(counts.values()) < min_count and column not in suspects
    ]
    if emptied:
        found.append(
            f"no word of {listed(emptied)} is in {min_count} rows, so none may travel; leave the column out with "
            f"--drop {','.join(emptied)}, or lower --min-count"
        )
    few = [
        column
        for column, known in _known_numbers(silos).items()
        if 0 < known < min_count <= rows and column not in suspects
    ]
    if few:
        found.append(
            f"fewer than {min_count} rows have a number in {listed(few)}, and means of so few tell what they hold; "
            f"leave the column out with --drop {','.join(few)}, or lower --min-count"
        )
    if rows < min_count:
        found.append(f"there are {rows} rows, and means of so few tell what they hold; lower --min-count to allow it")
    return [*found, *(_rare_labels(silos, min_count, keep) if task == "classification" else [])]


def _known_numbers(silos: Sequence[RawSilo]) -> Counter[str]:
    """Return how many rows have a number, for each column of numbers."""
    known: Counter[str] = Counter()
    for silo in silos:
        lack = {column: int(rows.sum()) for column, rows in silo.missing.items()}
        known.update({column: len(silo) - lack.get(column, 0) for column in silo.numeric})
    return known


def _rare_labels(silos: Sequence[RawSilo], min_count: int, keep: Collection[str]) -> list[str]:
    """Return a fault if a class has few rows: it can't be dropped silently, since its rows would have no class."""
    column = silos[0].label or "y"
    counts: Counter[str] = Counter()
    for silo in silos:
        for value, count in zip(*np.unique(silo.y, return_counts=True), strict=True):
            counts[label_name(value.item())] += int(count)
    rare = sorted(label for label, count in counts.items() if count < min_count)
    if not rare or column in keep:
        return []
    return [
        f"labels {listed(rare, 4)} of {column!r} have fewer than {min_count} rows each; leave those rows out, join "
        f"them to another class, or say with --keep {column} that they may travel"
    ]


def listing(schema: Schema, silos: Sequence[RawSilo] = ()) -> list[str]:
    """Return what a schema tells everyone who gets it, a line for each column.

    How often a word occurs is told only if missing cells are filled, as the most frequent word of all silos fills them.
    """
    counts = word_counts(silos)
    told = [("rows", f"{schema.count}, only their number")]
    told += [_target(schema)]
    if schema.columns is None:
        shown = ", ".join(f"{shift:.4g} ± {spread:.4g}" for shift, spread in _first(schema))
        told.append(("x", f"numbers of shape {schema.input_shape}; mean ± standard deviation {shown}"))
    scaling = {
        each.column: pair
        for each, pair in zip(schema.inputs, zip(schema.shift, schema.spread, strict=True), strict=False)
        if each.scaled
    }
    for column in schema.columns or ():
        lack = f"; missing in {_rows(rows)}" if (rows := schema.missing_cells.get(column)) else ""
        if column in schema.unknown:
            told.append((column, "missing in all rows"))
        elif column in schema.categories:
            told.append((column, _words(schema, column, counts.get(column, Counter())) + lack))
        else:
            told.append((column, _number(*scaling[column], column in schema.dates) + lack))
    if schema.dropped:
        told.append(("left out", f"{', '.join(schema.dropped)}; only the names of these columns travel"))
    width = max(len(name) for name, _ in told)
    return [f"  {name:<{width}}  {text}" for name, text in told]


def _target(schema: Schema) -> tuple[str, str]:
    name = f"{schema.label or 'y'} (to predict)"
    if schema.labels is None:
        return name, f"a number; mean {schema.target_shift:.6g}, standard deviation {schema.target_spread:.6g}"
    return name, f"classes {listed(schema.labels, MOST)}"


def _number(mean: float, deviation: float, dated: bool) -> str:
    if dated:
        return f"a date; mean {as_date(mean)}, standard deviation {deviation:.6g} days"
    return f"a number; mean {mean:.6g}, standard deviation {deviation:.6g}"


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def _first(schema: Schema) -> list[tuple[float, float]]:
    return list(zip(schema.shift, schema.spread, strict=True))[:3]


def _words(schema: Schema, column: str, counts: Counter[str]) -> str:
    known = schema.categories[column]
    rare = {word: count for word, count in counts.items() if word not in known}
    times = [f" ({_rows(n)})" for n in schema.word_counts.get(column, ())] or [""] * len(known)
    shown = [f"{brief(word)}{often}" for word, often in zip(known, times, strict=True)]
    text = f"words {', '.join(shown[:MOST])}" + (f" and {len(known) - MOST} more" if known[MOST:] else "")
    return text + (f"; rarer words stay here ({len(rare)}, in {sum(rare.values())} rows)" if rare else "")


def at_home(schema: Schema, silo: RawSilo) -> list[str]:
    """Return for each column how many rows have a word that is not in the schema, as it stayed at home."""
    lines, known = [], word_counts([silo])
    for column in schema.others:
        counts = known.get(column, Counter())
        rows = sum(n for word, n in counts.items() if word not in schema.categories[column])
        if rows:
            lines.append(f"column {column!r}: {rows} rows have a rare word, which counts as none of its words")
    return lines
