"""What a column of text holds: numbers, dates or words, by its different cells; an error names the place of a cell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedamp.data.silos.cells import LONGEST_WORD, as_number, is_missing, is_perhaps_missing
from fedamp.data.silos.files.dates import as_days
from fedamp.data.silos.files.decimals import NO_MARKS, Marks, comma_number, has_thousands, marks_of
from fedamp.data.silos.one_line import brief
from fedamp.data.silos.raw import Array
from fedamp.errors import UserError

Place = Callable[[int], str]  # from a row's number to its place in the file, say "line 17"

CURE = "--missing fill puts in a mean or the most frequent word, --missing drop leaves the row out (missing= in Python)"
LABEL_CURE = "--missing drop leaves the row out (missing= in Python)"


@dataclass(frozen=True)
class Cells:
    """The cells of a column, blanks around them removed: cell i is texts[codes[i]]."""

    texts: Sequence[str]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, cells: Sequence[str]) -> Cells:
        """Return cells with each different text once."""
        places: dict[str, int] = {}
        codes = np.fromiter((places.setdefault(cell, len(places)) for cell in cells), np.int64, len(cells))
        return cls(list(places), codes)

    def first(self, texts: Collection[int]) -> int:
        """Return the first row that has one of these texts, given by their places."""
        return int(np.isin(self.codes, list(texts)).argmax())

    def rows(self, texts: Collection[int]) -> NDArray[np.bool_]:
        """Return which rows (N,) have one of these texts."""
        chosen = np.zeros(len(self.texts), dtype=bool)
        chosen[list(texts)] = True
        return chosen[self.codes]


@dataclass(frozen=True)
class Column:
    """A column as it was read."""

    values: Array  # (N,) float64 with nan, or str with "", where a cell is missing; a label's may be int64
    lacking: NDArray[np.bool_] | None = None  # (N,) the missing cells; None if there are none
    dates: bool = False  # the numbers are days since 1970-01-01
    marks: Marks = NO_MARKS


def read_column(name: str, cells: Cells, place: Place, missing: str, separator: str) -> Column:
    """Return a column of features. Numbers among words, or dates among words, are refused: one of them is a slip."""
    texts = cells.texts
    plain = _plain_numbers(texts)
    if plain is not None:  # most columns; asking of each cell what it is takes several times as long
        return Column(plain[cells.codes], marks=_marks(cells, range(len(texts)), separator))
    empty = [i for i, text in enumerate(texts) if is_missing(text)]
    perhaps = [i for i, text in enumerate(texts) if is_perhaps_missing(text)]
    absent = {*empty, *perhaps}
    known = [i for i in range(len(texts)) if i not in absent]
    if not known and perhaps:
        raise UserError(
            f"{place(cells.first(perhaps))}, column {name!r} is {brief(texts[perhaps[0]])}, and no row has anything "
            "else: it could be a word or a missing value; write a word or nothing, or leave the column out with --drop"
        )
    numbers, wordy = _numbers(name, cells, known, place, separator)
    if known and not numbers:
        days, trouble = as_days([texts[i] for i in known])
        dated = {i: day for i, day in zip(known, days, strict=True) if day is not None}
        if not dated:
            return _words(name, cells, [*known, *perhaps], empty, place, missing, separator)
        _check_dates(name, cells, known, dated, trouble, place)
        return _filled(name, cells, dated, [*empty, *perhaps], place, missing, dates=True)
    if wordy:
        row = cells.first(wordy)
        have = int(cells.rows(list(numbers)).sum())
        raise UserError(
            f"{place(row)}, column {name!r} is {brief(texts[cells.codes[row]])}, which is not a number, but {have} of "
            f"{len(cells.codes)} rows have one; expected numbers in all rows, or words in all"
        )
    marks = _marks(cells, list(numbers), separator)
    return _filled(name, cells, numbers, [*empty, *perhaps], place, missing, marks=marks)


def read_labels(name: str, cells: Cells, place: Place, missing: str, separator: str) -> Column:
    """Return labels as whole numbers if all are, else as numbers, else as text.

    NA may be a class, and a warning says so later; rows are left out for it only if that was asked for.
    """
    texts, dropped = cells.texts, missing == "drop"
    empty = [i for i, text in enumerate(texts) if (is_missing(text) if dropped else not text)]
    absent = {*empty}
    known = [i for i in range(len(texts)) if i not in absent]
    check_present(name, cells, [] if dropped else empty, place, "expected a label in every row", LABEL_CURE)
    values = {i: _label_number(texts[i], separator) for i in known}
    for i, value in values.items():
        if value is not None and not abs(value) <= sys.float_info.max:
            cure = LABEL_CURE if is_missing(texts[i]) else "correct it"
            raise UserError(f"{_is(name, cells, i, place)}; expected a label in every row; {cure}")
        if len(texts[i]) > LONGEST_WORD:
            raise UserError(
                f"{place(cells.first([i]))}, column {name!r} has {len(texts[i])} characters; "
                f"expected a label of up to {LONGEST_WORD}"
            )
    lacking = cells.rows(empty) if empty else None
    limit = np.iinfo(np.int64).max
    if all(isinstance(value, int) and -limit <= value <= limit for value in values.values()):
        return Column(np.array([values.get(i, 0) for i in range(len(texts))], dtype=np.int64)[cells.codes], lacking)
    # A whole number beyond 64 bits names a class, and a float would merge it with its neighbours.
    if all(isinstance(value, float) or (value is not None and abs(value) <= limit) for value in values.values()):
        # From the text, as -0 is a float of its own and no whole number.
        floats = {i: float(texts[i]) if isinstance(value, int) else value for i, value in values.items()}
        numbers = np.array([floats.get(i, np.nan) for i in range(len(texts))], dtype=np.float64)
        return Column(numbers[cells.codes], lacking, marks=_marks(cells, known, separator))
    return Column(np.array(texts)[cells.codes], lacking)


def check_present(name: str, cells: Cells, absent: Collection[int], place: Place, expected: str, cure: str) -> None:
    """Raise if there are cells without a value."""
    if absent:
        row = cells.first(absent)
        raise UserError(f"{_is(name, cells, int(cells.codes[row]), place)}; {expected}; {cure}")


def _is(name: str, cells: Cells, text: int, place: Place) -> str:
    found = cells.texts[text]
    return f"{place(cells.first([text]))}, column {name!r} {f'is {brief(found)}' if found else 'is empty'}"


def _plain_numbers(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Return numbers if all texts are plain, finite ones."""
    try:
        values = np.array([float(text) for text in texts])
    except ValueError:
        return None
    return values if np.isfinite(values).all() and not any("_" in text for text in texts) else None


def _marks(cells: Cells, numbers: Sequence[int], separator: str) -> Marks:
    """Return what a column's numbers, given by the places of their texts, tell about decimal marks."""
    if separator == ",":
        return NO_MARKS
    return marks_of([cells.texts[i] for i in numbers], lambda i: cells.first([numbers[i]]))


def _label_number(text: str, separator: str) -> float | int | None:
    number = as_number(text)
    return comma_number(text) if number is None and separator != "," else number


def _numbers(
    name: str, cells: Cells, known: Sequence[int], place: Place, separator: str
) -> tuple[dict[int, float], list[int]]:
    """Return the numbers of a column by the places of their texts, and the places of the others."""
    numbers, wordy = {}, []
    for i in known:
        text = cells.texts[i]
        number = as_number(text)
        if number is None and separator != ",":
            number = comma_number(text)
        elif number is not None and not abs(number) <= sys.float_info.max:
            raise UserError(f"{_is(name, cells, i, place)}; expected a finite number or a word in every row")
        elif number is not None:
            number = float(text)  # -0 is a float of its own, and no whole number
        if number is None:
            wordy.append(i)
        else:
            numbers[i] = number
    return numbers, wordy


def _filled(
    name: str,
    cells: Cells,
    numbers: dict[int, float],
    empty: Collection[int],
    place: Place,
    missing: str,
    *,
    dates: bool = False,
    marks: Marks = NO_MARKS,
) -> Column:
    if missing == "refuse":
        check_present(name, cells, empty, place, "expected a value in every row", CURE)
    values = np.array([numbers.get(i, np.nan) for i in range(len(cells.texts))], dtype=np.float64)
    return Column(values[cells.codes], cells.rows(empty) if empty else None, dates, marks)


def _words(
    name: str,
    cells: Cells,
    known: Sequence[int],
    empty: Collection[int],
    place: Place,
    missing: str,
    separator: str,
) -> Column:
    texts = cells.texts
    if missing == "refuse":
        check_present(name, cells, empty, place, "expected a value in every row", CURE)
    if all(has_thousands(texts[i]) or (separator == "," and comma_number(texts[i]) is not None) for i in known):
        row = cells.first(known)
        raise UserError(
            f"{place(row)}, column {name!r} is {brief(texts[cells.codes[row]])}, a number with a mark that could "
            "be for decimals or thousands; write numbers as 1234.5, or leave the column out with --drop"
        )
    long = [i for i in known if len(texts[i]) > LONGEST_WORD]
    if long:
        row = cells.first(long)
        raise UserError(
            f"{place(row)}, column {name!r} has a text of {len(texts[cells.codes[row]])} characters; "
            f"expected numbers, or words of up to {LONGEST_WORD}: leave the column out with --drop {name}"
        )
    absent = {*empty}
    words = np.array(["" if i in absent else text for i, text in enumerate(texts)])
    return Column(words[cells.codes], cells.rows(empty) if empty else None)


def _check_dates(
    name: str, cells: Cells, known: Sequence[int], dated: Collection[int], trouble: str, place: Place
) -> None:
    others = [i for i in known if i not in dated]
    if others and not trouble:
        row = cells.first(others)
        raise UserError(
            f"{place(row)}, column {name!r} is {brief(cells.texts[cells.codes[row]])}, which is not a date, but "
            f"{int(cells.rows(dated).sum())} of {len(cells.codes)} rows have one; expected dates in all rows, or "
            "leave the column out with --drop"
        )
    if trouble:
        row = cells.first(dated)
        text = brief(cells.texts[cells.codes[row]])
        raise UserError(f"{place(row)}, column {name!r} is {text}: {trouble}, or leave the column out with --drop")
