"""What is allowed but may not be intended: a task that was guessed, names that look alike. Each line says what to do.

Nothing is corrected here: whether "yes" and "YES" are one class is for the owners of the rows to say.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from fedamp.data.silos.cells import as_number
from fedamp.data.silos.identifiers import silo_suspects
from fedamp.data.silos.one_line import brief, listed
from fedamp.data.silos.raw import Array, RawSilo, word_counts
from fedamp.data.silos.schema import Schema
from fedamp.data.silos.schema.notes import constant, filling, not_constant
from fedamp.data.silos.targets import MANY, guess_task, has_fractions, labels_of

FEW = 10  # this many classes may be amounts after all, if most of them occur in only one row
MISSING = {"na", "n/a", "#n/a", "null", "?"}  # as spreadsheets and programs write a cell that is empty


def task_warnings(ys: Sequence[Array], task: str) -> list[str]:
    """Return what may be wrong with the task of these targets; nothing if it was named, not guessed."""
    if task != "auto":
        return []
    if guess_task(ys) == "classification":
        return class_warnings(labels_of(*ys), sum(map(len, ys)))
    if any(has_fractions(y) for y in ys):
        return []
    values = np.unique(np.concatenate([np.unique(y) for y in ys if y.dtype.kind == "f"])).tolist()
    return [
        f"y has whole numbers, written as floats ({listed(values, 3)}): taken as regression; for classes give "
        "--task classification (Python: task='classification')"
    ]


def class_warnings(labels: Collection[str], rows: int) -> list[str]:
    """Return a warning if classes, by name, may be amounts: many different numbers, or fractions among words."""
    numbers = {name: number for name in labels if (number := as_number(name)) is not None}
    words = sorted(set(labels) - set(numbers))
    many = len(numbers) > MANY or (len(numbers) > FEW and 2 * len(numbers) > rows)
    broken = [name for name, number in numbers.items() if isinstance(number, float) and not number.is_integer()]
    if not many and not (words and broken):
        return []
    beside = f" besides {listed(words, 3)}" if words else ""
    cure = "correct those words and " if words else ""
    return [
        f"y has {len(numbers)} different numbers in {rows} rows{beside}: taken as classes; for amounts {cure}give "
        "--task regression (Python: task='regression')"
    ]


def name_warnings(what: str, held: Mapping[str, Collection[str]]) -> list[str]:
    """Return which of the names that silos have may mean the same: "yes" and "YES", or 0, 1 and "no", "yes"."""
    alike: dict[str, dict[str, list[str]]] = {}
    for place, names in held.items():
        for name in names:
            alike.setdefault(_sound(name), {}).setdefault(name, []).append(place)
    lookalikes = [
        " and ".join(f"{brief(name)} (in {listed(places, 3)})" for name, places in spellings.items())
        for spellings in alike.values()
        if len(spellings) > 1
    ]
    cure = "write them the same way in all silos"
    lines = []
    if lookalikes:
        more = f", and {len(lookalikes) - 3} more" if len(lookalikes) > 3 else ""
        lines.append(f"{what} look alike, but count as different: {'; '.join(lookalikes[:3])}{more}; {cure}")
    common = Counter(sound for names in held.values() for sound in {_sound(name) for name in names})
    alone = [place for place, names in held.items() if all(common[_sound(name)] == 1 for name in names)]
    if alone and len(held) > 1:
        other = next((place for place in held if place not in alone), alone[-1])
        examples = "; ".join(f"{brief(place)} has {listed(held[place], 3)}" for place in (alone[0], other))
        lines.append(f"{what} of {listed(alone, 3)} occur in no other silo ({examples}); if they mean the same, {cure}")
    return lines


def silo_warnings(silos: Sequence[RawSilo], schema: Schema, task: str) -> list[str]:
    """Return what may not be intended in silos in one place; `task` as it was asked for, perhaps "auto"."""
    lines = task_warnings([silo.y for silo in silos], task)
    if schema.labels is not None:
        lines += _label_warnings({silo.name: labels_of(silo.y) for silo in silos})
    known = {silo.name: word_counts([silo]) for silo in silos}
    words = {
        column: {name: counts[column] for name, counts in known.items() if column in counts}
        for column in schema.categories
    }
    return lines + empty_warnings(silos, schema) + _word_warnings(words)


def schema_warnings(schemas: Sequence[Schema], names: Sequence[str], task: str) -> list[str]:
    """Return the same for silos of which only the schemas are here."""
    by_name = dict(zip(names, schemas, strict=True))
    lines = []
    if schemas[0].labels is not None:
        held = {name: schema.labels or () for name, schema in by_name.items()}
        if task == "auto":
            labels = {label for labels in held.values() for label in labels}
            lines += class_warnings(labels, sum(schema.count for schema in schemas))
        lines += _label_warnings(held)
    columns = dict.fromkeys(column for schema in schemas for column in schema.categories)
    words = {
        column: {name: schema.categories[column] for name, schema in by_name.items() if column in schema.categories}
        for column in columns
    }
    return lines + _word_warnings(words)


def _label_warnings(held: Mapping[str, Collection[str]]) -> list[str]:
    missing = sorted({name for names in held.values() for name in names if _sound(name) in MISSING})
    lines = name_warnings("labels", held)
    if missing:
        cure = "if they stand for missing values, leave those rows out"
        lines.insert(0, f"labels {listed(missing)} count as classes; {cure}")
    return lines


def empty_warnings(silos: Sequence[RawSilo], schema: Schema) -> list[str]:
    """Return where all cells of a column are filled, which is more often a mistake in a file than intended."""
    empty = {column: [silo.name for silo in silos if column in silo.unknown] for column in schema.fills}
    return [
        f"column {column!r} has no cell in {listed(places, 3)}: all of its rows are filled with "
        f"{filling(schema, column)}; look at the file"
        for column, places in empty.items()
        if places
    ]


def constant_warnings(silos: Sequence[RawSilo], schema: Schema) -> list[str]:
    """Return where a column varies that is the same in all rows behind the schema: its input is 0 all the same."""
    other = {
        column: [
            silo.name
            for silo in silos
            if column in silo.numeric and not_constant(schema, column, silo.x[:, silo.numeric.index(column)]).any()
        ]
        for column in schema.constants
    }
    return [
        f"column {column!r} was {constant(schema, column)} in all rows behind the schema, and is not in "
        f"{listed(places, 3)}; models take no notice of other values, unless a schema is made of these rows too"
        for column, places in other.items()
        if places
    ]


def identifier_warnings(silos: Sequence[RawSilo]) -> list[str]:
    """Return which columns may be no features: a model learns by heart whose row it is, and new rows are of others."""
    return [
        f"column {column!r} looks like an identifier ({why}), and each model learns from it; leave it out with "
        f"--drop {column} (drop= in Python)"
        for column, why in silo_suspects(silos).items()
    ]


def _word_warnings(words: Mapping[str, Mapping[str, Collection[str]]]) -> list[str]:
    # Names and ids differ between silos, as they should; `schema_notes` mentions such a column.
    few = {column: held for column, held in words.items() if len(set().union(*held.values())) <= MANY}
    return [line for column, held in few.items() for line in name_warnings(f"words of column {column!r}", held)]


def _sound(name: str) -> str:
    """Return a name without what people write differently and mean alike: case, blanks, the width of letters."""
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())
