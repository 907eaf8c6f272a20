"""Columns that look like identifiers of people: nearly unique words, names, dates, texts, record numbers.

A schema carries every word of a column to all silos, so such a column is refused until its owner says otherwise. The
rules are made to have few false alarms; what they miss, the minimum count of a word keeps at home (`leaving`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.data.silos.raw import RawSilo, word_counts
from fedamp.data.silos.schema.definition import Schema
from fedamp.errors import UserError

FEW = 10  # with fewer words, or fewer rows of numbers, being all different says nothing
FEWEST_NAMES = 3
SHARE = 0.8  # of first or last names that differ; "never smoker" and "former smoker" are no names
LONG = 60  # characters, or 6 words: a text
RECORD = 100_000  # whole numbers from here on, all different, of one length: record numbers

_TIME = r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s?(Z|[+-]\d{2}:?\d{2})?)?"
_DATE = re.compile(
    rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}"
    rf"|\d{{1,2}}\.? ?[^\W\d_]{{3,9}}\.?,? ?\d{{2,4}}|[^\W\d_]{{3,9}}\.? \d{{1,2}}(st|nd|rd|th)?,? \d{{4}}){_TIME}"
)
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_NAME = re.compile(r"[^\W\d_][^\W\d_'’-]*['’-]?[^\W\d_]+,?( [^\W\d_][\w'’.-]*){1,3}")
_CALLED = re.compile(r"(^|[^a-z])((id|ids|mrn|ssn|pid|uid|uuid|guid)($|[^a-z])|(number|nr|no)$)")


def word_reason(words: Collection[str], rows: int, rare: int = 0) -> str:
    """Return why a column's different words look like identifiers, "" if they don't; `rare` of them are rare."""
    if 2 * _matching(_DATE, words) > len(words):
        return "dates"
    if 2 * _matching(_ADDRESS, words) > len(words):
        return "mail addresses"
    if _names(words):
        return "names of people"
    if len(words) < FEW:
        return ""
    if 4 * sum(len(word) > LONG or word.count(" ") > 4 for word in words) > len(words):
        return "texts"
    if 2 * len(words) > rows:
        return f"{len(words)} different words in {rows} rows"
    return f"{rare} of its {len(words)} words are rare" if 2 * rare > len(words) else ""


def number_reason(column: str, values: NDArray[Any]) -> str:
    """Return why a column's numbers look like identifiers, "" if they don't. Measurements have fractions, or repeat."""
    if len(values) < FEW or (values != np.floor(values)).any():
        return ""
    if _are_dates(values):
        return "dates, written as numbers"
    different, steps = len(np.unique(values)), np.diff(values)
    if different == len(values):
        if (steps > 0).all() or (steps < 0).all() or values.max() - values.min() == len(values) - 1:
            return "all different and in sequence, like row numbers"
        if values.min() >= RECORD and len(str(int(values.min()))) == len(str(int(values.max()))):
            return "all different and of one length, like record numbers"
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower()
    if 2 * different > len(values) and _CALLED.search(snake):
        return "mostly different, and called like a record number"
    return ""


def silo_suspects(silos: Sequence[RawSilo], min_count: int = 1) -> dict[str, str]:
    """Return which columns of silos look like identifiers, and why; words in fewer than `min_count` rows are rare."""
    rows, reasons = sum(len(silo) for silo in silos), {}
    for column, counts in word_counts(silos).items():
        reasons[column] = word_reason(counts, rows, sum(count < min_count for count in counts.values()))
    # Of dates only the mean travels, and it is no surprise that they are in sequence.
    for column in dict.fromkeys(column for silo in silos for column in silo.numeric if column not in silo.dates):
        parts = [silo.x[:, silo.numeric.index(column)] for silo in silos if column in silo.numeric]
        parts = [part[~np.isnan(part)] for part in parts]
        # One silo after the other: two of them may both number their rows from 1.
        reasons[column] = next((why for part in parts if (why := number_reason(column, part))), "")
    return {column: why for column, why in reasons.items() if why}


def schema_suspects(schema: Schema) -> dict[str, str]:
    """Return which columns of a schema look like identifiers by their words, and why, unless their owner kept them."""
    reasons = {
        column: word_reason(words, schema.count)
        for column, words in schema.categories.items()
        if column not in schema.kept
    }
    return {column: reason for column, reason in reasons.items() if reason}


def check_schemas(schemas: Sequence[Schema], names: Sequence[str]) -> None:
    """Refuse schemas with columns that look like identifiers: those of an earlier version may have them."""
    found = {name: schema_suspects(schema) for schema, name in zip(schemas, names, strict=True)}
    which = [f"{column!r} in {name} ({why})" for name, reasons in found.items() for column, why in reasons.items()]
    if which:
        columns = ",".join(dict.fromkeys(column for reasons in found.values() for column in reasons))
        raise UserError(
            f"these columns look like identifiers of people: {', '.join(which)}; ask for schemas that are made again "
            f"with `fedamp data schema --drop {columns}`, or with --keep where they may travel"
        )


def _matching(pattern: re.Pattern[str], words: Collection[str]) -> int:
    return sum(pattern.fullmatch(word) is not None for word in words)


def _names(words: Collection[str]) -> bool:
    """Whether most words are capitalised and of two to four parts, with first or last ones that differ."""
    found = [word.split() for word in words if _NAME.fullmatch(word) and word == _capital(word)]
    if len(words) < FEWEST_NAMES or 2 * len(found) <= len(words):
        return False
    varied = [len({parts[place] for parts in found}) >= SHARE * len(found) for place in (0, -1)]
    return any(varied) if len(words) >= FEW else all(varied)


def _capital(word: str) -> str:
    return " ".join(part[:1].upper() + part[1:] for part in word.split(" "))


def _are_dates(values: NDArray[Any]) -> bool:
    """Whether all numbers are days, written as 20240131."""
    if values.min() < 1900_01_01 or values.max() > 2100_12_31:
        return False
    try:
        for value in np.unique(values).astype(np.int64).tolist():
            date(value // 10_000, value // 100 % 100, value % 100)
    except ValueError:
        return False
    return True
