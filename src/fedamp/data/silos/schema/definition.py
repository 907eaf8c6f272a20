"""The schema itself, and how its fields must fit together. `schema_form` says which values each may have in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fedamp.data.silos.cells import LONGEST_WORD
from fedamp.data.silos.one_line import brief, listed
from fedamp.errors import UserError

VERSION = 1
Task = Literal["classification", "regression"]
TASKS: tuple[str, ...] = get_args(Task)


@dataclass(frozen=True)
class Schema:
    """The agreement of a federation's silos; a model sees (x - shift) / scale.

    `shift` and `spread` are means and standard deviations (of the population) over all rows: one for each feature of
    flat inputs, a single one otherwise. Bytes are pictures, with a single 0 and 255. A column of words becomes as many
    inputs as it has words, 0 or 1, in the column's place; these are not scaled.
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
    kept: tuple[
        str, ...
    ] = ()  # csv: columns that look like identifiers, and of which their owner says that they are not
    version: int = VERSION

    @property
    def scale(self) -> tuple[float, ...]:
        """What inputs are divided by: the spread, or 1 if a feature is constant."""
        return tuple(value or 1.0 for value in self.spread)

    @property
    def target_scale(self) -> float:
        """What targets are divided by: their spread, or 1 if they are constant."""
        return self.target_spread or 1.0

    @property
    def features(self) -> tuple[str, ...]:
        """The names of a table's inputs after the encoding: 'age', 'sex=F', 'sex=M'; none for other inputs."""
        return tuple(name for name, _ in inputs_of(self.columns or (), self.categories))

    def __post_init__(self) -> None:
        self._check_names()
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

    def _check_shape(self) -> None:
        if self.columns is not None and self.input_shape != (len(self.features),):
            raise UserError(
                f"input_shape of the schema is {brief(self.input_shape)}; expected ({len(self.features)},), "
                "one for each of its columns of numbers and each of its words"
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
        inputs = inputs_of(self.columns or (), self.categories)  # none if the schema is not for a table
        for (name, column), shift, spread in zip(inputs, self.shift, self.spread, strict=False):
            if column in self.categories and (shift, spread) != (0, 1):
                raise UserError(
                    f"shift and spread of {brief(name)} in the schema are {shift} and {spread}; "
                    "expected 0 and 1, as words are not scaled"
                )


def inputs_of(columns: Iterable[str], categories: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Return the inputs that columns become, each with its column."""
    return [
        (column if word is None else f"{column}={word}", column)
        for column in columns
        for word in categories.get(column, (None,))
    ]


def _check_texts(what: str, names: tuple[str, ...]) -> None:
    for name in names:
        if not name or len(name) > LONGEST_WORD or any("\ud800" <= character <= "\udfff" for character in name):
            raise UserError(
                f"{what} of the schema have {brief(name)}; expected texts of 1 to {LONGEST_WORD} characters"
            )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{what} of the schema have {brief(twice)} twice; expected each once")
