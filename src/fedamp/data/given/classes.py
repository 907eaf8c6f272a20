"""Targets handed over from Python as words: classes in the order of their names, the same for all clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fedamp.data.silos.cells import LONGEST_WORD, label_name
from fedamp.data.silos.one_line import brief, listed
from fedamp.data.silos.targets import labels_of, sorted_labels
from fedamp.errors import UserError

TARGETS = (1, 3)
"""The places of targets among a client's parts: (x, y, x_test, y_test)."""


def with_classes(
    names: Sequence[str], pairs: Sequence[Sequence[Any]]
) -> tuple[list[Sequence[Any]], tuple[str, ...] | None]:
    """Return the clients' parts with class numbers in place of words, and what the classes are called.

    Where no client has words, nothing changes. If one has, all others' targets are names too: 1 is the class "1".
    """
    words = [{place: _words(parts[place]) for place in TARGETS if place < len(parts)} for parts in pairs]
    if not any(column is not None for each in words for column in each.values()):
        return list(pairs), None
    columns = [
        {place: _cells(whose, parts[place]) if column is None else column for place, column in each.items()}
        for whose, parts, each in zip(names, pairs, words, strict=True)
    ]
    for whose, each in zip(names, columns, strict=True):
        for column in each.values():
            _check(whose, column)
    labels = sorted_labels(labels_of(*(column for each in columns for column in each.values())))
    return [_coded(parts, each, labels) for parts, each in zip(pairs, columns, strict=True)], labels


def in_known_classes(whose: str, parts: Sequence[Any], labels: Sequence[str]) -> Sequence[Any]:
    """Return one client's parts with class numbers in place of words, by the names that classes have already."""
    columns = {}
    for place in TARGETS[: len(parts) // 2]:
        words = _words(parts[place])
        columns[place] = column = _cells(whose, parts[place]) if words is None else words
        _check(whose, column)
        if unknown := [name for name in labels_of(column) if name not in labels]:
            raise UserError(f"{whose} has labels {listed(unknown)}, unknown to the run; expected {listed(labels)}")
    return _coded(parts, columns, labels)


def _coded(parts: Sequence[Any], columns: Mapping[int, Any], labels: Sequence[str]) -> Sequence[Any]:
    """Return parts with class numbers in some places."""
    numbers = {label: number for number, label in enumerate(labels)}
    changed = list(parts)
    for place, column in columns.items():
        changed[place] = np.array([numbers[label_name(value)] for value in column.tolist()], dtype=np.int64)
    return changed


def _words(y: Any) -> Any | None:
    """Return targets as an array of words, if some of them are words; None if not."""
    if isinstance(y, Tensor):
        return None
    try:
        array = np.asanyarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
        if array.dtype.kind == "U" and isinstance(y, list | tuple):  # numpy makes words of the numbers among them
            array = np.array(y, dtype=object)
    except (TypeError, ValueError, RuntimeError):  # what is wrong with it is said where numbers are made of it
        return None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "UOT":
        return None
    return array.astype(object) if any(isinstance(value, str) for value in array.tolist()) else None


def _cells(whose: str, y: Any) -> Any:
    array = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y.to_numpy() if hasattr(y, "to_numpy") else y)
    if array.ndim != 1 or array.dtype.kind not in "biuO":
        raise UserError(
            f"the targets of {whose} have type {array.dtype} and shape {array.shape}, but other clients have words; "
            "expected words for all"
        )
    return array


def _check(whose: str, column: Any) -> None:
    """Raise unless all targets of a client are words, or all are numbers that name classes."""
    for row, value in enumerate(column.tolist()):
        if not isinstance(value, str | bool | int) or not str(value).strip() or len(str(value)) > LONGEST_WORD:
            raise UserError(
                f"row {row} of the targets of {whose} is {brief(value)}; expected a word in every row, of up to "
                f"{LONGEST_WORD} characters"
            )
    values = column.tolist()
    word = next((row for row, value in enumerate(values) if isinstance(value, str)), None)
    number = next((row for row, value in enumerate(values) if not isinstance(value, str)), None)
    if word is not None and number is not None:
        raise UserError(
            f"the targets of {whose} have words and numbers: row {word} is {brief(values[word])} and row {number} is "
            f"{brief(values[number])}; expected words in all rows, or numbers in all (y.astype(str) makes them words)"
        )
