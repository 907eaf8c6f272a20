"""The rows of one silo as its files hold them, whatever kind of file they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.data.silos.cells import LONGEST_WORD
from fedamp.data.silos.one_line import listed
from fedamp.errors import UserError

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)  # eq: two arrays' == is an array, not an answer
class RawSilo:
    """The rows of one silo as its files hold them.

    From a table, `columns` are the features in the file's order; `x` has those that are numbers, in that order, and
    `words` has the others, by their names. A table's missing cell is nan among numbers and "" among words; a column
    without a known cell may be either, as nobody can tell. Dates are numbers: days since 1970-01-01.
    """

    name: str
    x: Array  # (N, ...) float32, float64 or whole numbers
    y: Array  # (N,) numbers or str
    columns: tuple[str, ...] | None = None
    words: Mapping[str, Array] = field(default_factory=dict)  # column -> (N,) str
    label: str | None = None  # csv: the column that y is from
    dropped: tuple[str, ...] = ()  # csv: columns of the file that were left out
    dates: tuple[str, ...] = ()  # csv: columns of x that were written as dates
    left_out: int = 0  # csv: rows of the files that were left out, as a cell is missing in them

    def __post_init__(self) -> None:
        of = f"of silo {self.name!r}"
        if self.x.dtype.kind not in "iu" and self.x.dtype not in (np.float32, np.float64):
            raise UserError(f"x {of} has type {self.x.dtype}; expected float32, float64 or whole numbers")
        if self.y.dtype.kind not in "iufU":
            raise UserError(f"y {of} has type {self.y.dtype}; expected numbers or text")
        if self.x.ndim < 2:
            raise UserError(
                f"x {of} has shape {self.x.shape}; expected (samples, features) or more axes: "
                "a single feature is x[:, None]"
            )
        if self.y.ndim != 1:
            raise UserError(f"y {of} has shape {self.y.shape}; expected one axis, (samples,)")
        if len(self.x) != len(self.y):
            raise UserError(f"x {of} has {len(self.x)} rows and y has {len(self.y)}; expected one label for each")
        if not len(self.y):
            raise UserError(f"silo {self.name!r} has no rows; expected at least one")
        if not self.x[0].size and not self.words:
            raise UserError(f"x {of} has shape {self.x.shape}, so no features; expected at least one")
        self._check_columns()
        _check_finite(f"x {of}", self.x, missing=self.columns is not None)
        _check_finite(f"y {of}", self.y)
        if self.y.dtype.kind == "U":
            empty = np.flatnonzero(np.char.str_len(np.char.strip(self.y)) == 0)
            if len(empty):
                raise UserError(f"y {of} is empty in row {empty[0]}; expected a label in every row")
            _check_words(f"y {of}", self.y)

    def _check_columns(self) -> None:
        of = f"of silo {self.name!r}"
        if other := [column for column in self.dates if column not in self.numeric]:
            raise UserError(f"dates {of} name {listed(other)}; expected columns of numbers, {listed(self.numeric)}")
        if self.columns is None:
            if self.words:
                raise UserError(f"silo {self.name!r} has words but no columns; expected the names of all columns")
            return
        if len(set(self.columns)) != len(self.columns) or not set(self.words) <= set(self.columns):
            raise UserError(
                f"columns {of} are {listed(self.columns)}, with words in {listed(self.words)}; "
                "expected each name once, and words in some of them"
            )
        if self.x.shape[1:] != (len(self.columns) - len(self.words),):
            raise UserError(
                f"x {of} has shape {self.x.shape} for {len(self.columns)} columns, {len(self.words)} of words; "
                "expected one number per row for each of the others"
            )
        for column, cells in self.words.items():
            if cells.dtype.kind != "U" or cells.shape != (len(self),):
                raise UserError(
                    f"column {column!r} {of} has type {cells.dtype} and shape {cells.shape}; "
                    f"expected words for each of {len(self)} rows"
                )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def numeric(self) -> tuple[str, ...]:
        """The names of x's columns, in order; none if the silo isn't a table."""
        return tuple(column for column in self.columns or () if column not in self.words)

    @cached_property
    def missing(self) -> dict[str, NDArray[np.bool_]]:
        """Of a table: which rows (N,) lack a cell, for each column that lacks any."""
        lacking = {column: cells == "" for column, cells in self.words.items()}
        if self.columns is not None and self.x.dtype.kind == "f":
            lacking |= dict(zip(self.numeric, np.isnan(self.x).T, strict=True))
        return {column: lacking[column] for column in self.columns or () if column in lacking and lacking[column].any()}

    @property
    def unknown(self) -> tuple[str, ...]:
        """Columns without a known cell: whether they would be numbers, dates or words can't be told here."""
        return tuple(column for column, rows in self.missing.items() if rows.all())

    @cached_property
    def coded(self) -> dict[str, tuple[list[str], NDArray[np.int64]]]:
        """For each column of words, its different words in alphabetical order, and the place (N,) of each row's among
        them; "" is one of them. By a dict, as sorting all rows' texts takes several times as long.
        """
        found = {}
        for column, cells in self.words.items():
            texts = cells.tolist()
            words = sorted(set(texts))
            places = {word: place for place, word in enumerate(words)}
            found[column] = words, np.fromiter(map(places.__getitem__, texts), np.int64, len(texts))
        return found


def with_kinds(silo: RawSilo, wordy: Collection[str]) -> RawSilo:
    """Return a silo in which columns without a known cell are words if they are among `wordy`, and else numbers."""
    empty = silo.unknown
    if all((column in silo.words) == (column in wordy) for column in empty):
        return silo
    nothing, no_word = np.full(len(silo), np.nan), np.full(len(silo), "")
    words = {column: cells for column, cells in silo.words.items() if column not in empty}
    words |= {column: no_word for column in empty if column in wordy}
    numbers: dict[str, Array] = dict(zip(silo.numeric, silo.x.T, strict=True))
    numeric = [column for column in silo.columns or () if column not in words]
    x = np.stack([numbers.get(column, nothing) for column in numeric], axis=1) if numeric else silo.x[:, :0]
    return replace(silo, x=x, words=words, dates=tuple(column for column in silo.dates if column in numeric))


def word_counts(silos: Sequence[RawSilo]) -> dict[str, Counter[str]]:
    """Return how many rows have each word, for each column of words that has a known one; missing cells don't count."""
    counts: dict[str, Counter[str]] = {}
    for silo in silos:
        for column, (words, codes) in silo.coded.items():
            times = np.bincount(codes, minlength=len(words)).tolist()
            found = {word: n for word, n in zip(words, times, strict=True) if word}
            if found:
                counts.setdefault(column, Counter()).update(found)
    return counts


def _check_finite(what: str, array: Array, missing: bool = False) -> None:
    """Raise if a number is not finite; nan is fine where cells may be missing."""
    if array.dtype.kind != "f":
        return
    finite = ~np.isinf(array) if missing else np.isfinite(array)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), array.shape)
        within = f" at {tuple(int(i) for i in place[1:])}" if array.ndim > 1 else ""
        raise UserError(f"{what} is {float(array[place])} in row {place[0]}{within}; expected finite numbers")


def _check_words(what: str, words: Array) -> None:
    lengths = np.char.str_len(words)
    if lengths.max() > LONGEST_WORD:
        raise UserError(
            f"{what} has {lengths.max()} characters in row {lengths.argmax()}; expected labels of up to {LONGEST_WORD}"
        )
