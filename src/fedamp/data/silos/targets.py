"""What the targets of silos are: amounts or classes, and what the classes are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedamp.data.silos.cells import as_number, label_name
from fedamp.data.silos.one_line import brief
from fedamp.data.silos.raw import Array, RawSilo
from fedamp.errors import UserError

MANY = 50  # more classes or words than this are more often a mistaken column than intended


def guess_task(ys: Sequence[Array]) -> str:
    """Return the task that targets suggest by their type: floats are amounts, whole numbers and words are classes.

    Floats that are whole, among words, are names of classes: no word is an amount.
    """
    if any(has_fractions(y) for y in ys):
        return "regression"
    kinds = {y.dtype.kind for y in ys}
    return "regression" if "f" in kinds and "U" not in kinds else "classification"


def labels_of(*ys: Array) -> list[str]:
    """Return the labels that occur in targets, each once."""
    return sorted({label_name(value) for y in ys for value in np.unique(y).tolist()})


def sorted_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return each label once: numbers by size if all are numbers, else in alphabetical order.

    >>> sorted_labels(["10", "9"]), sorted_labels(["10", "9", "other"])
    (('9', '10'), ('10', '9', 'other'))
    """
    once = sorted(set(names))
    numbers = {name: number for name in once if (number := as_number(name)) is not None}
    return tuple(sorted(once, key=lambda name: numbers[name]) if len(numbers) == len(once) else once)


def amounts(silo: RawSilo) -> NDArray[np.float64]:
    """Return the targets of a regression; a word among them is an error."""
    if silo.y.dtype.kind == "U":
        values = silo.y.tolist()
        word = next((value for value in values if as_number(value) is None), values[0])
        raise UserError(f"y of silo {silo.name!r} has the word {brief(word)}; expected numbers for regression")
    return silo.y.astype(np.float64)


def has_fractions(y: Array) -> bool:
    """Whether some target is not a whole number."""
    return y.dtype.kind == "f" and bool((y != np.floor(y)).any())
