"""The rows of one silo as its files hold them, whatever kind of file they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

    From a csv file, `columns` are the features in the file's order; `x` has those that are numbers, in that order,
    and `words` has the others, by their names.
    """

    name: str
    x: Array  # (N, ...) float32, float64 or whole numbers
    y: Array  # (N,) numbers or str
    columns: tuple[str, ...] | None = None
    words: Mapping[str, Array] = field(default_factory=dict)  # column -> (N,) str
    label: str | None = None  # csv: the column that y is from
    dropped: tuple[str, ...] = ()  # csv: columns of the file that were left out

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
        _check_finite(f"x {of}", self.x)
        _check_finite(f"y {of}", self.y)
        if self.y.dtype.kind == "U":
            empty = np.flatnonzero(np.char.str_len(np.char.strip(self.y)) == 0)
            if len(empty):
                raise UserError(f"y {of} is empty in row {empty[0]}; expected a label in every row")
            _check_words(f"y {of}", self.y)

    def _check_columns(self) -> None:
        of = f"of silo {self.name!r}"
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


def word_counts(silos: Sequence[RawSilo]) -> dict[str, Counter[str]]:
    """Return how many rows have each word, for each column of words."""
    counts: dict[str, Counter[str]] = {}
    for silo in silos:
        for column, cells in silo.words.items():
            words, times = np.unique(cells, return_counts=True)
            counts.setdefault(column, Counter()).update(dict(zip(words.tolist(), times.tolist(), strict=True)))
    return counts


def _check_finite(what: str, array: Array) -> None:
    if array.dtype.kind != "f":
        return
    finite = np.isfinite(array)
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
