"""What silos that never meet must agree on: the columns, the classes, and how inputs are scaled.

Each silo describes its own rows by a partial schema (counts, means, spreads, names of classes and words), and the
partial schemas are merged. Merging gives what one schema made of all rows gives. A schema holds no row, but its names
and means are read by everyone who gets it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedamp import checks
from fedamp.data.silos.doubts import MANY, guess_task, labels_of
from fedamp.data.silos.read import LONGEST_WORD, RawSilo, as_number, brief, label_name, listed
from fedamp.errors import UserError

VERSION = 1
TASKS = ("classification", "regression")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Schema:
    """The agreement of a federation's silos; a model sees (x - shift) / scale.

    `shift` and `spread` are means and standard deviations (of the population) over all rows: one for each feature of
    flat inputs, one in all otherwise. Bytes are pictures, with 0 and 255 once. A column of words becomes as many
    inputs as it has words, 0 or 1, where the column stands; these are not scaled.
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
    version: int = VERSION

    @property
    def scale(self) -> tuple[float, ...]:
        """What inputs are divided by: the spread, or 1 where a feature is constant."""
        return tuple(value or 1.0 for value in self.spread)

    @property
    def target_scale(self) -> float:
        """What targets are divided by: their spread, or 1 where they are constant."""
        return self.target_spread or 1.0

    @property
    def features(self) -> tuple[str, ...]:
        """The names of a table's inputs after the encoding: 'age', 'sex=F', 'sex=M'; none for other inputs."""
        return tuple(name for name, _ in _inputs(self.columns or (), self.categories))

    def __post_init__(self) -> None:
        checks.count("version of the schema", self.version)
        if self.version != VERSION:
            raise UserError(f"version of the schema is {brief(self.version)}; expected {VERSION}: update fedamp")
        checks.one_of("task of the schema", self.task, TASKS)
        checks.count("count of the schema", self.count)
        checks.truth("pictures of the schema", self.pictures)
        if self.label is not None and (not isinstance(self.label, str) or self.label in (self.columns or ())):
            raise UserError(
                f"label of the schema is {brief(self.label)}; expected the name of a column beside its columns"
            )
        self._check_names()
        self._check_shape()
        self._check_numbers()

    def _check_names(self) -> None:
        if (self.labels is None) != (self.task == "regression"):
            raise UserError(
                f"labels of the schema are {brief(self.labels)} and its task is {self.task}; "
                "expected labels for classification alone"
            )
        if self.labels is not None:
            _check_texts("labels", self.labels)
        if self.columns is not None:
            _check_texts("columns", self.columns)
        if not isinstance(self.categories, Mapping):
            raise UserError(f"categories of the schema are {brief(self.categories)}; expected words by column")
        for column, words in self.categories.items():
            if column not in (self.columns or ()):
                raise UserError(
                    f"categories of the schema name {brief(column)}; expected one of its columns, "
                    f"{listed(self.columns or ())}"
                )
            _check_texts(f"categories[{column!r}]", words)

    def _check_shape(self) -> None:
        shape = self.input_shape
        if not isinstance(shape, tuple) or not shape or any(not _whole(size) or size < 1 for size in shape):
            raise UserError(
                f"input_shape of the schema is {brief(shape)}; expected whole numbers of 1 or more, at least one"
            )
        if self.columns is not None and shape != (len(self.features),):
            raise UserError(
                f"input_shape of the schema is {brief(shape)}; expected ({len(self.features)},), "
                "as many as its columns and words make"
            )
        if self.pictures and self.columns is not None:
            raise UserError("pictures of the schema is True and it has columns; expected one or the other")

    def _check_numbers(self) -> None:
        expected = self.input_shape[0] if len(self.input_shape) == 1 and not self.pictures else 1
        for what, numbers in (("shift", self.shift), ("spread", self.spread)):
            if not isinstance(numbers, tuple) or len(numbers) != expected:
                raise UserError(f"{what} of the schema is {brief(numbers)}; expected {expected} numbers")
            for number in numbers:
                _check_number(what, number, least=0 if what == "spread" else None)
        _check_number("target_shift", self.target_shift)
        _check_number("target_spread", self.target_spread, least=0)
        if self.task == "classification" and (self.target_shift, self.target_spread) != (0, 1):
            raise UserError(
                f"target_shift and target_spread of the schema are {self.target_shift} and {self.target_spread}; "
                "expected 0 and 1, as classes are not scaled"
            )
        if self.pictures and (self.shift, self.spread) != ((0,), (255,)):
            raise UserError(
                f"shift and spread of the schema are {self.shift} and {self.spread}; expected 0 and 255 for pictures"
            )
        for (name, column), shift, spread in zip(
            _inputs(self.columns or (), self.categories), self.shift, self.spread, strict=False
        ):
            if column in self.categories and (shift, spread) != (0, 1):
                raise UserError(
                    f"shift and spread of {brief(name)} in the schema are {shift} and {spread}; "
                    "expected 0 and 1, as words are not scaled"
                )


def make_schema(silos: Sequence[RawSilo], task: str = "auto") -> Schema:
    """Return the schema of silos that lie together, or of one silo alone, to be merged with the others'.

    "auto" goes by the targets' type (`guess_task`): floats are a regression, whole numbers and words are classes.
    Several silos that are described apart should name their task: one of them may write 25 where the others write
    25.0. Columns are in the order of the first silo. One silo alone may have a single class; a federation needs two.
    """
    checks.one_of("task", task, ("auto", *TASKS))
    if not silos:
        raise UserError("there are no silos; expected at least one")
    if task == "auto":
        task = guess_task([silo.y for silo in silos])
    names = [f"silo {silo.name!r}" for silo in silos]
    merged = _merge([_describe(silo, task) for silo in silos], names)
    if len(silos) > 1:
        _check_classes(merged)
    return merged


def merge_schemas(schemas: Sequence[Schema], names: Sequence[str] | None = None) -> Schema:
    """Return the schema of all rows that partial schemas describe; an error calls them by `names`.

    Classes and words are united; means and variances are combined by the difference of the means (Chan, Golub
    and LeVeque, 1983), which loses no digits where means are large.
    """
    if not schemas:
        raise UserError("there are no schemas to merge; expected at least one")
    if names is not None and len(names) != len(schemas):
        raise UserError(f"got {len(names)} names for {len(schemas)} schemas; expected one for each")
    merged = _merge(schemas, names or [f"schema {i}" for i in range(1, len(schemas) + 1)])
    _check_classes(merged)
    return merged


def check_agreed(schema: Schema, task: str, label: str | None) -> None:
    """Refuse a task or a label column that is not the schema's: it would be passed over in silence."""
    if task not in ("auto", schema.task):
        raise UserError(f"task is {task!r}, but the schema is for {schema.task}; make the schema anew with --task")
    if label not in (None, schema.label) and (schema.label is not None or schema.columns is None):
        has = f"predicts {schema.label!r}" if schema.label else "is of arrays (npz), whose targets are y"
        raise UserError(f"label is {label!r}, but the schema {has}; leave it out, or make the schema anew")


def apply_schema(schema: Schema, silo: RawSilo) -> tuple[Tensor, Tensor]:
    """Return a silo's inputs (N, *input_shape) float32, encoded and scaled, and its targets (N,).

    Targets are class numbers, int64, or for regression numbers that are scaled too, float32.
    """
    of = f"silo {silo.name!r}"
    difference = _layout_difference(schema, silo.columns, silo.words, silo.x.shape[1:], silo.x.dtype == np.uint8)
    if difference:
        raise UserError(f"{of} doesn't fit the schema: {difference}")
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinity, which is looked for below
        if schema.pictures:
            x = silo.x.astype(np.float32) / np.float32(255)
        else:
            x = _encode(schema, silo)
            x = ((x - np.array(schema.shift)) / np.array(schema.scale)).astype(np.float32)
        if schema.labels is None:
            target = (_targets(silo) - schema.target_shift) / schema.target_scale
            y = torch.from_numpy(target.astype(np.float32))
        else:
            y = torch.from_numpy(_classes(schema.labels, silo))
    for what, values in (("x", x), ("y", y.numpy())):
        if not np.isfinite(values).all():
            raise UserError(f"{what} of {of} has numbers too far from the schema's mean; expected the same units")
    return torch.from_numpy(x), y


def schema_notes(schema: Schema, silos: Sequence[RawSilo] = ()) -> list[str]:
    """Return what is allowed but worth a line to whoever runs the federation."""
    notes = []
    for column, words in schema.categories.items():
        notes.append(f"column {column!r} has {len(words)} words ({listed(words, 4)}): each becomes an input")
        if len(words) > MANY:
            notes.append(f"column {column!r} may be a name, a date or a text: the schema tells its words to all")
    constant = [name for name, spread in zip(schema.features, schema.spread, strict=False) if not spread]
    if constant:
        notes.append(f"the same in all rows, so of no use: {listed(constant)}")
    if schema.pictures and len(schema.input_shape) == 1:
        notes.append("x is of bytes, so it is taken as pictures and divided by 255; save other numbers as float32")
    for silo in silos if schema.task == "classification" else ():
        names = labels_of(silo.y)
        if len(names) == 1:
            notes.append(f"silo {silo.name!r} has rows of one class only, {brief(names[0])}")
    return notes


def _describe(silo: RawSilo, task: str) -> Schema:
    """Return the schema of one silo alone."""
    of = f"silo {silo.name!r}"
    categories = {column: tuple(np.unique(cells).tolist()) for column, cells in silo.words.items()}
    pictures = silo.x.dtype == np.uint8
    table = silo.columns is not None
    if pictures and table:
        raise UserError(f"x of {of} is of bytes and has columns; expected numbers in a table, as float64")
    inputs = _inputs(silo.columns or (), categories)
    if pictures:
        mean, variance = np.zeros(1), np.array([255.0**2])
    else:
        samples = silo.x if silo.x.ndim == 2 else silo.x.reshape(-1, 1)
        mean, variance = _moments(of, samples, silo.numeric)
    target_mean, target_variance = np.zeros(1), np.ones(1)
    labels = None
    if task == "regression":
        target_mean, target_variance = _moments(of, _targets(silo)[:, None], ("y",))
    else:
        labels = _sorted_labels(labels_of(silo.y))
    moments = dict(zip(silo.numeric, zip(mean.tolist(), variance.tolist(), strict=True), strict=True)) if table else {}
    pairs = [moments.get(column, (0.0, 1.0)) for _, column in inputs]
    return Schema(
        task=task,
        columns=silo.columns,
        input_shape=(len(inputs),) if table else tuple(silo.x.shape[1:]),
        labels=labels,
        shift=tuple(pair[0] for pair in pairs) if table else tuple(mean.tolist()),
        spread=tuple(float(np.sqrt(pair[1])) for pair in pairs) if table else tuple(np.sqrt(variance).tolist()),
        categories=categories,
        target_shift=float(target_mean[0]),
        target_spread=float(np.sqrt(target_variance[0])),
        pictures=bool(pictures),
        count=len(silo),
        label=silo.label,
    )


def _merge(schemas: Sequence[Schema], names: Sequence[str]) -> Schema:
    """Return the schema of all rows; `names` are whose the schemas are, for errors."""
    merged, first = schemas[0], names[0]
    for schema, name in zip(schemas[1:], names[1:], strict=True):
        if schema.task != merged.task:
            raise UserError(
                f"task of {name} is {schema.task} and that of {first} is {merged.task}; "
                "expected the same: name the task where each schema is made"
            )
        if None not in (schema.label, merged.label) and schema.label != merged.label:
            raise UserError(
                f"{name} predicts {brief(schema.label)} and {first} predicts {brief(merged.label)}; expected one "
                "column: name it with --label where each schema is made"
            )
        difference = _layout_difference(merged, schema.columns, schema.categories, schema.input_shape, schema.pictures)
        if difference:
            raise UserError(f"{name} doesn't fit {first}: {difference}")
        merged = _merge_two(merged, schema)
    return merged


def _check_classes(schema: Schema) -> None:
    if schema.labels is not None and len(schema.labels) < 2:
        raise UserError(
            f"all rows of all silos have the label {brief(schema.labels[0])}; "
            "expected at least two classes: look at the label column"
        )


def _merge_two(a: Schema, b: Schema) -> Schema:
    categories = {column: tuple(sorted({*words, *b.categories[column]})) for column, words in a.categories.items()}
    inputs = _inputs(a.columns or (), categories)
    shift, spread = a.shift, a.spread
    if a.columns is not None:
        ours, theirs = _by_column(a), _by_column(b)
        pairs = [
            (0.0, 1.0)
            if column in categories
            else _combine(f"column {column!r}", a.count, ours[column], b.count, theirs[column])
            for _, column in inputs
        ]
        shift, spread = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    elif not a.pictures:
        pairs = [
            _combine("x", a.count, mine, b.count, other)
            for mine, other in zip(
                zip(a.shift, a.spread, strict=True), zip(b.shift, b.spread, strict=True), strict=True
            )
        ]
        shift, spread = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    target = a.target_shift, a.target_spread
    if a.task == "regression":
        target = _combine("y", a.count, target, b.count, (b.target_shift, b.target_spread))
    return replace(
        a,
        input_shape=(len(inputs),) if a.columns is not None else a.input_shape,
        labels=None if a.labels is None else _sorted_labels([*a.labels, *(b.labels or ())]),
        shift=shift,
        spread=spread,
        categories=categories,
        target_shift=target[0],
        target_spread=target[1],
        count=a.count + b.count,
    )


def _combine(
    what: str, count_a: int, a: tuple[float, float], count_b: int, b: tuple[float, float]
) -> tuple[float, float]:
    """Return mean and spread of two sets of rows from (mean, spread) of each."""
    share = count_b / (count_a + count_b)
    # Equal means leave a delta of exactly 0, so that what is constant in all silos stays constant.
    delta = b[0] - a[0]
    # A hypotenuse, and not the root of squares: it neither overflows nor underflows on the way.
    spread = math.hypot(a[1] * math.sqrt(1 - share), b[1] * math.sqrt(share), delta * math.sqrt(share * (1 - share)))
    mean = a[0] + delta * share
    if not math.isfinite(spread) or not math.isfinite(mean):
        raise UserError(f"{what} has numbers too large to scale, {a[0]} and {b[0]}; divide them by a power of ten")
    return mean, spread


def _moments(of: str, x: NDArray[Any], names: Sequence[str]) -> tuple[Floats, Floats]:
    """Return mean and variance of each column of x (N, F); a constant column has its value and 0, exactly."""
    values = x.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        # By differences: sums of large numbers would lose digits, and those of a constant wouldn't give it back.
        mean = values[0] + (values - values[0]).mean(axis=0)
        mean += (values - mean).mean(axis=0)
        variance = np.square(values - mean).mean(axis=0)
    bad = np.flatnonzero(~(np.isfinite(mean) & np.isfinite(variance)))
    if len(bad):
        what = f"column {names[bad[0]]!r}" if names else "x"
        largest = np.abs(values[:, bad[0]]).max()
        raise UserError(
            f"{what} of {of} has numbers too large to scale, up to {largest}; divide them by a power of ten"
        )
    return mean, variance


def _by_column(schema: Schema) -> dict[str, tuple[float, float]]:
    inputs = _inputs(schema.columns or (), schema.categories)
    return {column: (u, v) for (_, column), u, v in zip(inputs, schema.shift, schema.spread, strict=True)}


def _inputs(columns: Iterable[str], categories: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Return the inputs that columns become, each with its column."""
    return [
        (column if word is None else f"{column}={word}", column)
        for column in columns
        for word in categories.get(column, (None,))
    ]


def _layout_difference(
    schema: Schema,
    columns: tuple[str, ...] | None,
    wordy: Collection[str],
    shape: tuple[int, ...],
    pictures: bool,
) -> str:
    """Return in words how other rows differ from a schema in what they consist of; "" where they fit."""
    if (columns is None) != (schema.columns is None):
        kinds = ("a table (csv)", "arrays (npz)")
        here, there = kinds if columns is not None else kinds[::-1]
        return f"it has {here}, expected {there}: use one kind of file for all"
    if columns is not None and schema.columns is not None:
        lacking = [column for column in schema.columns if column not in columns]
        extra = [column for column in columns if column not in schema.columns]
        if lacking or extra:
            return f"it lacks columns {listed(lacking)} and has others {listed(extra)}; expected the same names"
        for column in columns:
            if (column in wordy) != (column in schema.categories):
                here, there = ("words", "numbers") if column in wordy else ("numbers", "words")
                return f"column {column!r} has {here}, expected {there}: write it in one way in all silos"
        return ""
    if tuple(shape) != schema.input_shape:
        return f"it has samples of shape {tuple(shape)}, expected {schema.input_shape}"
    if pictures != schema.pictures:
        here, there = ("bytes (uint8)", "other numbers") if pictures else ("other numbers", "bytes (uint8)")
        return f"x is of {here}, expected {there}: save x with one type in all silos"
    return ""


def _encode(schema: Schema, silo: RawSilo) -> Floats:
    """Return a silo's inputs in the schema's order, words as 0 and 1."""
    if schema.columns is None:
        return silo.x.astype(np.float64)
    places = {column: i for i, column in enumerate(silo.numeric)}
    blocks: list[Floats] = []
    for column in schema.columns:
        if column in places:
            blocks.append(silo.x[:, [places[column]]].astype(np.float64))
            continue
        known = schema.categories[column]
        words, inverse = np.unique(silo.words[column], return_inverse=True)
        unknown = [word for word in words.tolist() if word not in known]
        if unknown:
            raise UserError(
                f"column {column!r} of silo {silo.name!r} has {listed(unknown)}, unknown to the schema; "
                f"expected {listed(known)}: merge the schemas anew, or correct the rows"
            )
        blocks.append(np.eye(len(known))[[known.index(word) for word in words.tolist()]][inverse])
    return np.concatenate(blocks, axis=1)


def _classes(labels: tuple[str, ...], silo: RawSilo) -> NDArray[np.int64]:
    """Return the number of each row's class."""
    values, inverse = np.unique(silo.y, return_inverse=True)
    names = [label_name(value) for value in values.tolist()]
    places = {name: i for i, name in enumerate(labels)}
    unknown = [name for name in names if name not in places]
    if unknown:
        raise UserError(
            f"silo {silo.name!r} has labels {listed(unknown)}, unknown to the schema; "
            f"expected {listed(labels)}: merge the schemas anew, or correct the rows"
        )
    return np.array([places[name] for name in names], dtype=np.int64)[inverse]


def _targets(silo: RawSilo) -> Floats:
    if silo.y.dtype.kind == "U":
        values = silo.y.tolist()
        word = next((value for value in values if as_number(value) is None), values[0])
        raise UserError(f"y of silo {silo.name!r} has the word {brief(word)}; expected numbers for regression")
    return silo.y.astype(np.float64)


def _sorted_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return each label once: numbers by size where all are numbers, else in the alphabet's order.

    >>> _sorted_labels(["10", "9"]), _sorted_labels(["10", "9", "other"])
    (('9', '10'), ('10', '9', 'other'))
    """
    once = sorted(set(names))
    numbers = {name: number for name in once if (number := as_number(name)) is not None}
    return tuple(sorted(once, key=lambda name: numbers[name]) if len(numbers) == len(once) else once)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_texts(what: str, names: object) -> None:
    if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
        raise UserError(f"{what} of the schema are {brief(names)}; expected texts, at least one")
    for name in names:
        if not name or len(name) > LONGEST_WORD or any("\ud800" <= character <= "\udfff" for character in name):
            raise UserError(
                f"{what} of the schema have {brief(name)}; expected texts of 1 to {LONGEST_WORD} characters"
            )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{what} of the schema have {brief(twice)} twice; expected each once")


def _check_number(what: str, value: object, least: float | None = None) -> None:
    kind = "a finite number" if least is None else f"a finite number of {least} or more"
    # Compared and not converted: JSON has whole numbers that no float can hold.
    largest = sys.float_info.max
    if not isinstance(value, int | float) or isinstance(value, bool) or not -largest <= value <= largest:
        raise UserError(f"{what} of the schema has {brief(value)}; expected {kind}")
    if least is not None and value < least:
        raise UserError(f"{what} of the schema has {brief(value)}; expected {kind}")
