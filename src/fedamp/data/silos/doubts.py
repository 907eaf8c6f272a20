"""What is allowed but may not be meant: a task that was guessed, names that look alike. Each is told with its cure.

Nothing is corrected here: whether "yes" and "YES" are one class is for those to say whose rows they are.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedamp.data.silos.read import Array, RawSilo, as_number, brief, label_name, listed

if TYPE_CHECKING:
    from fedamp.data.silos.schema import Schema

MANY = 50  # classes or words beyond this are more often a wrong column than meant
FEW = 10  # and these may be, where most of them stand in one row alone
MISSING = {"na", "n/a", "#n/a", "null", "?"}  # as spreadsheets and programs write a cell that is empty


def guess_task(ys: Sequence[Array]) -> str:
    """Return the task that targets suggest by their type: floats are amounts, whole numbers and words are classes.

    Floats that are whole beside words are the names of classes: no word is an amount.
    """
    if any(_fractional(y) for y in ys):
        return "regression"
    kinds = {y.dtype.kind for y in ys}
    return "regression" if "f" in kinds and "U" not in kinds else "classification"


def task_doubts(ys: Sequence[Array], task: str) -> list[str]:
    """Return what may be wrong with the task of these targets; nothing where it was named and not guessed."""
    if task != "auto":
        return []
    if guess_task(ys) == "classification":
        return class_doubts(labels_of(*ys), sum(map(len, ys)))
    if any(_fractional(y) for y in ys):
        return []
    values = np.unique(np.concatenate([np.unique(y) for y in ys if y.dtype.kind == "f"])).tolist()
    return [
        f"y has whole numbers, written as floats ({listed(values, 3)}): taken as regression; for classes give "
        "--task classification (Python: task='classification')"
    ]


def class_doubts(labels: Collection[str], rows: int) -> list[str]:
    """Return whether classes, by name, may be amounts: many different numbers, or broken ones beside words."""
    numbers = {name: number for name in labels if (number := as_number(name)) is not None}
    words = sorted(set(labels) - set(numbers))
    many = len(numbers) > MANY or (len(numbers) > FEW and 2 * len(numbers) > rows)
    broken = [name for name, number in numbers.items() if isinstance(number, float) and not number.is_integer()]
    if not many and not (words and broken):
        return []
    beside = f" beside {listed(words, 3)}" if words else ""
    cure = "correct these words and " if words else ""
    return [
        f"y has {len(numbers)} different numbers in {rows} rows{beside}: taken as classes; for amounts {cure}give "
        "--task regression (Python: task='regression')"
    ]


def name_doubts(what: str, held: Mapping[str, Collection[str]]) -> list[str]:
    """Return which names, of those that each silo has, may mean the same: "yes" and "YES", or 0, 1 and "no", "yes"."""
    alike: dict[str, dict[str, list[str]]] = {}
    for place, names in held.items():
        for name in names:
            alike.setdefault(_sound(name), {}).setdefault(name, []).append(place)
    told = [
        " and ".join(f"{brief(name)} (in {listed(places, 3)})" for name, places in spellings.items())
        for spellings in alike.values()
        if len(spellings) > 1
    ]
    cure = "write them in one way in all silos"
    lines = []
    if told:
        more = f", and {len(told) - 3} more" if len(told) > 3 else ""
        lines.append(f"{what} look alike, but count as different: {'; '.join(told[:3])}{more}; {cure}")
    common = Counter(sound for names in held.values() for sound in {_sound(name) for name in names})
    alone = [place for place, names in held.items() if all(common[_sound(name)] == 1 for name in names)]
    if alone and len(held) > 1:
        other = next((place for place in held if place not in alone), alone[-1])
        examples = "; ".join(f"{brief(place)} has {listed(held[place], 3)}" for place in (alone[0], other))
        lines.append(f"{what} of {listed(alone, 3)} stand in no other silo ({examples}); if they mean the same, {cure}")
    return lines


def silo_doubts(silos: Sequence[RawSilo], schema: Schema, task: str) -> list[str]:
    """Return what may not be meant in silos that lie together; `task` as it was asked for, perhaps "auto"."""
    lines = task_doubts([silo.y for silo in silos], task)
    if schema.labels is not None:
        lines += _label_doubts({silo.name: labels_of(silo.y) for silo in silos})
    words = {
        column: {silo.name: np.unique(silo.words[column]).tolist() for silo in silos} for column in schema.categories
    }
    return lines + _word_doubts(words)


def schema_doubts(schemas: Sequence[Schema], names: Sequence[str], task: str) -> list[str]:
    """Return the same for silos of which the schemas alone are here."""
    by_name = dict(zip(names, schemas, strict=True))
    lines = []
    if schemas[0].labels is not None:
        held = {name: schema.labels or () for name, schema in by_name.items()}
        if task == "auto":
            labels = {label for labels in held.values() for label in labels}
            lines += class_doubts(labels, sum(schema.count for schema in schemas))
        lines += _label_doubts(held)
    words = {
        column: {name: schema.categories[column] for name, schema in by_name.items()}
        for column in schemas[0].categories
    }
    return lines + _word_doubts(words)


def labels_of(*ys: Array) -> list[str]:
    """Return the labels that stand in targets, each once."""
    return sorted({label_name(value) for y in ys for value in np.unique(y).tolist()})


def _label_doubts(held: Mapping[str, Collection[str]]) -> list[str]:
    missing = sorted({name for names in held.values() for name in names if _sound(name) in MISSING})
    told = [f"labels {listed(missing)} count as classes; if they stand for missing ones, leave these rows out"]
    return (told if missing else []) + name_doubts("labels", held)


def _word_doubts(words: Mapping[str, Mapping[str, Collection[str]]]) -> list[str]:
    # Names and ids differ between silos, as they should; `schema_notes` tells of such a column.
    few = {column: held for column, held in words.items() if len(set().union(*held.values())) <= MANY}
    return [line for column, held in few.items() for line in name_doubts(f"words of column {column!r}", held)]


def _fractional(y: Array) -> bool:
    return y.dtype.kind == "f" and bool((y != np.floor(y)).any())


def _sound(name: str) -> str:
    """Return a name without what people write differently and mean alike: case, blanks, the width of letters."""
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())
