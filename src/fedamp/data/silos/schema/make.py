"""A schema from rows: of one silo alone, or of silos in one place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp import checks
from fedamp.data.silos.raw import RawSilo, word_counts
from fedamp.data.silos.schema.definition import MISSING, TASKS, Schema, inputs_of, version_of
from fedamp.data.silos.schema.merge import check_classes, merge
from fedamp.data.silos.schema.missing import check_complete, check_known
from fedamp.data.silos.targets import amounts, guess_task, labels_of, sorted_labels
from fedamp.errors import UserError

Floats = NDArray[np.float64]


def make_schema(
    silos: Sequence[RawSilo], task: str = "auto", min_count: int = 1, missing: str = "refuse", indicate: bool = False
) -> Schema:
    """Return the schema of silos in one place, or of one silo alone, to be merged with the others'.

    "auto" decides by the targets' type (`guess_task`): floats are a regression, whole numbers and words are classes.
    Silos that are described separately should name their task: one of them may write 25 where the others write
    25.0. Columns are in the order of the first silo. One silo alone may have a single class; a federation needs two.
    Words in fewer than `min_count` of all rows are left out: such a cell is encoded as none of its column's words.
    `missing` and `indicate` say what becomes of missing cells, see `Schema`. One silo alone may have a column without
    any cell; a federation needs one.
    """
    checks.one_of("task", task, ("auto", *TASKS))
    checks.one_of("missing", missing, MISSING)
    if not silos:
        raise UserError("there are no silos; expected at least one")
    for silo in silos:
        if missing != "fill":
            check_complete(silo)
        if missing != "refuse" and silo.columns is None:
            raise UserError(
                f"missing is {missing!r}, but silo {silo.name!r} has arrays (npz), not a table; leave it out"
            )
    if task == "auto":
        task = guess_task([silo.y for silo in silos])
    names = [f"silo {silo.name!r}" for silo in silos]
    counts = word_counts(silos)
    rare = {column: {word for word, n in words.items() if n < min_count} for column, words in counts.items()}
    if empty := [column for column in counts if len(rare[column]) == len(counts[column])]:
        raise UserError(f"no word of column {empty[0]!r} is in {min_count} rows; drop the column, or lower min_count")
    merged = merge([_describe(silo, task, rare, missing, indicate) for silo in silos], names)
    if len(silos) > 1:
        check_classes(merged)
        check_known(merged)
    return merged


def _describe(silo: RawSilo, task: str, rare: Mapping[str, Collection[str]], missing: str, indicate: bool) -> Schema:
    """Return the schema of one silo alone, without rare words."""
    of = f"silo {silo.name!r}"
    words = word_counts([silo])
    categories = {
        column: tuple(word for word in sorted(words[column]) if word not in rare[column])
        for column in silo.words
        if column in words
    }
    dates = tuple(column for column in silo.dates if column not in silo.unknown)
    missing_cells = {column: int(rows.sum()) for column, rows in silo.missing.items()}
    pictures = silo.x.dtype == np.uint8
    table = silo.columns is not None
    if pictures and table:
        raise UserError(f"x of {of} holds bytes and has columns; expected numbers in a table, as float64")
    inputs = inputs_of(silo.columns or (), categories, missing_cells if indicate else ())
    if pictures:
        mean, variance = np.zeros(1), np.array([255.0**2])
    else:
        samples = silo.x if silo.x.ndim == 2 else silo.x.reshape(-1, 1)
        mean, variance = _moments(of, samples, silo.numeric)
    target_mean, target_variance = np.zeros(1), np.ones(1)
    labels = None
    if task == "regression":
        target_mean, target_variance = _moments(of, amounts(silo)[:, None], ("y",))
    else:
        labels = sorted_labels(labels_of(silo.y))
    moments = dict(zip(silo.numeric, zip(mean.tolist(), variance.tolist(), strict=True), strict=True)) if table else {}
    # A column of numbers that is not among x's has no cell at all.
    pairs = [moments.get(each.column, (0.0, 0.0)) if each.scaled else (0.0, 1.0) for each in inputs]
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
        dropped=silo.dropped,
        others=tuple(column for column in categories if len(categories[column]) < len(words[column])),
        dates=dates,
        missing=missing,
        indicate=indicate,
        missing_cells=missing_cells,
        word_counts={column: tuple(words[column][word] for word in known) for column, known in categories.items()}
        if missing == "fill"
        else {},
        version=version_of(dates, missing),
    )


def _moments(of: str, x: NDArray[Any], names: Sequence[str]) -> tuple[Floats, Floats]:
    """Return mean and variance of each column of x (N, F); a constant column has its value and 0, exactly.

    Missing cells (nan) don't count; a column without any other has 0 and 0.
    """
    values = x.astype(np.float64)
    known = ~np.isnan(values)
    if not known.all():
        each = [
            _moments(of, values[rows, place : place + 1], names[place : place + 1])
            if (rows := known[:, place]).any()
            else (np.zeros(1), np.zeros(1))
            for place in range(values.shape[1])
        ]
        return np.concatenate([mean for mean, _ in each]), np.concatenate([variance for _, variance in each])
    with np.errstate(over="ignore", invalid="ignore"):
        # From differences: sums of large numbers would lose digits, and the mean of a constant would not be exact.
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
