"""The schema itself, and how its fields must fit together. `schema_form` says which values each may have in a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from fedamp.data.silos.cells import LONGEST_WORD
from fedamp.data.silos.one_line import brief, listed
from fedamp.errors import UserError

VERSION = 1
NEWER = 2  # of a schema that says what to do about missing cells, or has dates: earlier versions can't follow it
Task = Literal["classification", "regression"]
TASKS: tuple[str, ...] = get_args(Task)
Missing = Literal["refuse", "fill", "drop"]
MISSING: tuple[str, ...] = get_args(Missing)


CONSTANT = 2.0**100
"""What a feature is divided by that is the same in all rows. Its input is 0 in training, so that its weights stay as
they were drawn: another value in a row to come must not reach them, or it would drive the prediction."""


@dataclass(frozen=True)
class Schema:
    """The agreement of a federation's silos; a model sees (x - shift) / scale.

    `shift` and `spread` are means and standard deviations (of the population) over all rows: one for each feature of
    flat inputs, a single one otherwise. Bytes are pictures, with a single 0 and 255. A column of words becomes as many
    inputs as it has words, 0 or 1, in the column's place; these are not scaled.

    A table's missing cells don't count in means, spreads and counts of words. Under "fill" such a cell becomes the
    mean or the most frequent word of its column, and if `indicate`, each column of which cells are missing has a
    further input, 1 where they are. A column of which all cells are missing is of no kind yet: it has mean and spread
    0, and takes the kind of the schema that it is merged with.
    """

    task: str  # classification or regression
    columns: tuple[str, ...] | None  # csv: the features in order; npz: None
    input_shape: tuple[int, ...]  # of one sample, after the encoding
    labels: tuple[str, ...] | None  # classification: the classes in order
    shift: tuple[float, ...]
    spread: tuple[float, ...]  # kept apart from `scale`: a 0 must stay a 0 for merging
    categories: Mapping[str, tuple[str, ...]]  # csv: a column of words -> its words in order
    target_shift: float  # regression: of the targets; else 0
    target_spread: float  # regression: of the targets; else 1
    pictures: bool  # the inputs are bytes
    count: int  # rows behind the means
    label: str | None = None  # csv: the column to predict
    dropped: tuple[str, ...] = ()  # csv: columns that are left out when rows are read
    others: tuple[str, ...] = ()  # csv: columns of words whose rarer words stayed at home: such a cell is none of them
    kept: tuple[str, ...] = ()  # csv: columns that look like identifiers, which their owner says they are not
    dates: tuple[str, ...] = ()  # csv: columns of numbers that are days since 1970-01-01
    missing: str = "refuse"  # csv: what becomes of missing cells: refuse, fill, or drop the row
    indicate: bool = False  # fill: whether an input says where cells are missing
    missing_cells: Mapping[str, int] = field(default_factory=dict)  # fill: a column -> rows without a cell, if any
    word_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # fill: a column of words -> rows of each
    version: int = VERSION

    @property
    def scale(self) -> tuple[float, ...]:
        """What inputs are divided by: the spread, or CONSTANT if a feature is the same in all rows."""
        return tuple(value or CONSTANT for value in self.spread)

    @cached_property
    def constants(self) -> dict[str, float]:
        """A table's columns of numbers that are the same in all rows, and what they are there."""
        found = zip(self.inputs, self.shift, self.spread, strict=False)
        return {
            each.column: shift
            for each, shift, spread in found
            if each.scaled and not spread and each.column not in self.unknown
        }

    @property
    def target_scale(self) -> float:
        """What targets are divided by: their spread, or 1 if they are constant."""
        return self.target_spread or 1.0

    @property
    def features(self) -> tuple[str, ...]:
        """The names of a table's inputs after the encoding: 'age', 'sex=F', 'sex=M'; none for other inputs."""
        return tuple(each.name for each in self.inputs)

    @cached_property
    def inputs(self) -> list[Input]:
        """A table's inputs after the encoding, in order; none for other inputs."""
        return inputs_of(self.columns or (), self.categories, self.indicated)

    @cached_property
    def indicated(self) -> tuple[str, ...]:
        """Columns with an input that says where their cells are missing."""
        return tuple(self.missing_cells) if self.indicate else ()

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Columns without a known cell, so of no kind yet."""
        return tuple(column for column, rows in self.missing_cells.items() if rows == self.count)

    def known(self, column: str) -> int:
        """The number of rows that have a cell of this column."""
        return self.count - self.missing_cells.get(column, 0)

    @cached_property
    def fills(self) -> dict[str, float | str]:
        """What a missing cell of each column becomes: the mean, or the most frequent word, of several the first."""
        if self.missing != "fill":
            return {}
        means = {each.column: shift for each, shift in zip(self.inputs, self.shift, strict=True) if each.scaled}
        # max: of equally many the first, and words are in alphabetical order.
        common = {
            column: max(zip(self.categories[column], counts, strict=True), key=lambda pair: pair[1])[0]
            for column, counts in self.word_counts.items()
        }
        both: dict[str, float | str] = {**means, **common}
        return {column: both[column] for column in self.columns or () if column not in self.unknown}

    def __post_init__(self) -> None:
        self._check_names()
        self._check_missing()
        self._check_shape()
        self._check_scaling()

    def _check_names(self) -> None:
        if (self.labels is None) != (self.task == "regression"):
            raise UserError(
                f"labels of the schema are {brief(self.labels)} and its task is {self.task}; "
                "expected labels for classification only"
            )
        _check_texts("labels", self.labels or ())
        _check_texts("columns", self.columns or ())
        if self.label is not None and self.label in (self.columns or ()):
            raise UserError(
                f"label of the schema is {brief(self.label)}, which is one of its columns too; "
                "expected the column to predict to be none of those to predict it from"
            )
        _check_texts("dropped", self.dropped)
        if both := [column for column in self.dropped if column in (*(self.columns or ()), self.label)]:
            raise UserError(f"dropped of the schema has {brief(both[0])}, which is one of its columns too")
        for column in self.others:
            if column not in self.categories:
                raise UserError(f"others of the schema name {brief(column)}; expected a column of words")
        for column, words in self.categories.items():
            if column not in (self.columns or ()):
                raise UserError(
                    f"categories of the schema name {brief(column)}; expected one of its columns, "
                    f"{listed(self.columns or ())}"
                )
            _check_texts(f"categories[{column!r}]", words)

    def _check_missing(self) -> None:
        """Raise unless the fields about missing cells and dates fit the others."""
        numeric = [column for column in self.columns or () if column not in self.categories]
        expected = version_of(self.dates, self.missing)
        if self.version != expected:
            raise UserError(
                f"version of the schema is {self.version}, with missing {self.missing!r} and dates "
                f"{listed(self.dates)}; expected {expected}"
            )
        _check_texts("dates", self.dates)
        if other := [column for column in self.dates if column not in numeric]:
            raise UserError(f"dates of the schema name {brief(other[0])}; expected columns of numbers")
        fills = self.missing == "fill"
        if not fills and (self.indicate or self.missing_cells or self.word_counts):
            raise UserError(
                f"missing of the schema is {self.missing!r}, and it has indicate, missing_cells or word_counts; "
                "expected these with 'fill' only"
            )
        if self.columns is None and self.missing != "refuse":
            raise UserError(f"missing of the schema is {self.missing!r}, and it is for arrays; expected a table")
        for column, rows in self.missing_cells.items():
            if column not in (self.columns or ()) or rows > self.count:
                raise UserError(
                    f"missing_cells of the schema have {rows} for {brief(column)}; expected one of its columns, and "
                    f"at most {self.count}"
                )
        if fills and sorted(self.word_counts) != sorted(self.categories):
            raise UserError(
                f"word_counts of the schema are of {listed(self.word_counts)}; expected {listed(self.categories)}"
            )
        for column, counts in self.word_counts.items():
            if len(counts) != len(self.categories[column]) or sum(counts) > self.known(column):
                raise UserError(
                    f"word_counts of {brief(column)} in the schema are {brief(counts)}; expected one for each of its "
                    f"{len(self.categories[column])} words, and at most {self.known(column)} in all"
                )

    def _check_shape(self) -> None:
        if self.columns is not None and self.input_shape != (len(self.features),):
            raise UserError(
                f"input_shape of the schema is {brief(self.input_shape)}; expected ({len(self.features)},), "
                "one for each of its columns of numbers, each of its words, and each indicator"
            )
        if self.pictures and self.columns is not None:
            raise UserError("pictures of the schema is True and it has columns; expected one or the other")
        expected = self.input_shape[0] if len(self.input_shape) == 1 and not self.pictures else 1
        for what, numbers in (("shift", self.shift), ("spread", self.spread)):
            if len(numbers) != expected:
                some = "1 number" if expected == 1 else f"{expected} numbers"
                raise UserError(f"{what} of the schema is {brief(numbers)}; expected {some}")

    def _check_scaling(self) -> None:
        if self.task == "classification" and (self.target_shift, self.target_spread) != (0, 1):
            raise UserError(
                f"target_shift and target_spread of the schema are {self.target_shift} and {self.target_spread}; "
                "expected 0 and 1, as classes are not scaled"
            )
        if self.pictures and (self.shift, self.spread) != ((0,), (255,)):
            raise UserError(
                f"shift and spread of the schema are {self.shift} and {self.spread}; expected 0 and 255 for pictures"
            )
        for each, shift, spread in zip(self.inputs, self.shift, self.spread, strict=False):
            if not each.scaled and (shift, spread) != (0, 1):
                raise UserError(
                    f"shift and spread of {brief(each.name)} in the schema are {shift} and {spread}; "
                    "expected 0 and 1, as indicators and words are not scaled"
                )


class Input(NamedTuple):
    """One input of a model: a number, a word of a column, or whether a cell is missing."""

    name: str
    column: str
    scaled: bool  # numbers are; a word and an indicator are 0 or 1
    indicator: bool = False


def inputs_of(
    columns: Iterable[str], categories: Mapping[str, tuple[str, ...]], indicated: Collection[str] = ()
) -> list[Input]:
    """Return the inputs that columns become, in order; those that are indicated have one more, after their own."""
    inputs = []
    for column in columns:
        if column in categories:
            inputs += [Input(f"{column}={word}", column, scaled=False) for word in categories[column]]
        else:
            inputs.append(Input(column, column, scaled=True))
        if column in indicated:
            inputs.append(Input(f"{column} is missing", column, scaled=False, indicator=True))
    return inputs


def version_of(dates: Collection[str], missing: str) -> int:
    """Return the version of a schema's file: what uses nothing new is the file that it always was."""
    return NEWER if dates or missing != "refuse" else VERSION


def _check_texts(what: str, names: tuple[str, ...]) -> None:
    for name in names:
        if not name or len(name) > LONGEST_WORD or any("\ud800" <= character <= "\udfff" for character in name):
            raise UserError(
                f"{what} of the schema have {brief(name)}; expected texts of 1 to {LONGEST_WORD} characters"
            )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{what} of the schema have {brief(twice)} twice; expected each once")
