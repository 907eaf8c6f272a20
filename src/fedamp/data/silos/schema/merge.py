"""One schema from several: what all their rows together would have given."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fedamp.data.silos.one_line import brief, listed
from fedamp.data.silos.schema.definition import Schema, inputs_of, version_of
from fedamp.data.silos.schema.layout import layout_difference
from fedamp.data.silos.schema.missing import check_known, way_of
from fedamp.data.silos.targets import sorted_labels
from fedamp.errors import UserError

NOTHING = (0.0, 0.0)  # mean and spread of a column without a known cell


def merge_schemas(schemas: Sequence[Schema], names: Sequence[str] | None = None) -> Schema:
    """Return the schema of all rows that partial schemas describe; errors call them by `names`.

    Classes and words are united; means and variances are combined by the difference of the means (Chan, Golub
    and LeVeque, 1983), which loses no digits when means are large.
    """
    if not schemas:
        raise UserError("there are no schemas to merge; expected at least one")
    if names is not None and len(names) != len(schemas):
        raise UserError(f"got {len(names)} names for {len(schemas)} schemas; expected one for each")
    merged = merge(schemas, names or [f"schema {i}" for i in range(1, len(schemas) + 1)])
    check_classes(merged)
    check_known(merged)
    return merged


def merge(schemas: Sequence[Schema], names: Sequence[str]) -> Schema:
    """Return the schema of all rows; `names` say whose schemas they are, for errors."""
    merged, first = schemas[0], names[0]
    for schema, name in zip(schemas[1:], names[1:], strict=True):
        if schema.task != merged.task:
            raise UserError(
                f"task of {name} is {schema.task} and that of {first} is {merged.task}; "
                "expected the same; name the task where each schema is made"
            )
        if None not in (schema.label, merged.label) and schema.label != merged.label:
            raise UserError(
                f"{name} predicts {brief(schema.label)} and {first} predicts {brief(merged.label)}; expected one "
                "column; name it with --label where each schema is made"
            )
        _check_dropped(schemas, names, schema, name)
        if way_of(schema) != way_of(merged):
            raise UserError(
                f"{name} was made with {way_of(schema)} and {first} with {way_of(merged)}; expected the same; "
                "make the schemas again with the same flags in all silos"
            )
        difference = layout_difference(
            merged,
            schema.columns,
            schema.categories,
            schema.input_shape,
            schema.pictures,
            schema.dates,
            schema.unknown,
        )
        if difference:
            raise UserError(f"{name} doesn't fit {first}: {difference}")
        merged = _merge_two(merged, schema)
    return merged


def _check_dropped(schemas: Sequence[Schema], names: Sequence[str], schema: Schema, name: str) -> None:
    """Raise if one silo has left out a column that another has."""
    for other, whose in zip(schemas, names, strict=True):
        for here, there, has, drops in ((schema, other, name, whose), (other, schema, whose, name)):
            if both := [column for column in there.dropped if column in (here.columns or ())]:
                raise UserError(
                    f"{has} has column {listed(both)}, which {drops} leaves out; expected the same columns in all "
                    f"silos; make the schema of {has} again with --drop {','.join(both)}, or that of {drops} without"
                )


def check_classes(schema: Schema) -> None:
    """Raise if all rows have the same label: there is nothing to learn."""
    if schema.labels is not None and len(schema.labels) < 2:
        raise UserError(
            f"all rows of all silos have the label {brief(schema.labels[0])}; "
            "expected at least two classes; look at the label column"
        )


def _merge_two(a: Schema, b: Schema) -> Schema:
    """Return the schema of the rows of both, whose layouts are the same, but for columns without a known cell."""
    columns = a.columns or ()
    categories = {
        column: tuple(sorted({*a.categories.get(column, ()), *b.categories.get(column, ())}))
        for column in columns
        if column in a.categories or column in b.categories
    }
    missing_cells = {
        column: rows for column in columns if (rows := a.missing_cells.get(column, 0) + b.missing_cells.get(column, 0))
    }
    inputs = inputs_of(columns, categories, missing_cells if a.indicate else ())
    if a.columns is not None:
        mine, other = _by_column(a), _by_column(b)
        scaling = [
            _combine(
                f"column {column!r}",
                *(a.known(column), mine.get(column, NOTHING)),
                *(b.known(column), other.get(column, NOTHING)),
            )
            if scaled
            else (0.0, 1.0)
            for _, column, scaled, _ in inputs
        ]
    else:
        scaling = list(zip(a.shift, a.spread, strict=True))
        if not a.pictures:
            others = zip(b.shift, b.spread, strict=True)
            scaling = [
                _combine("x", a.count, ours, b.count, theirs) for ours, theirs in zip(scaling, others, strict=True)
            ]
    dates = tuple(column for column in columns if column in (*a.dates, *b.dates))
    target = a.target_shift, a.target_spread
    if a.task == "regression":
        target = _combine("y", a.count, target, b.count, (b.target_shift, b.target_spread))
    return replace(
        a,
        input_shape=(len(inputs),) if a.columns is not None else a.input_shape,
        labels=None if a.labels is None else sorted_labels([*a.labels, *(b.labels or ())]),
        shift=tuple(mean for mean, _ in scaling),
        spread=tuple(spread for _, spread in scaling),
        categories=categories,
        dropped=tuple(sorted({*a.dropped, *b.dropped})),
        others=tuple(sorted({*a.others, *b.others})),
        kept=tuple(sorted({*a.kept, *b.kept})),
        dates=dates,
        missing_cells=missing_cells,
        word_counts={column: _counted(a, b, column, words) for column, words in categories.items()}
        if a.missing == "fill"
        else {},
        version=version_of(dates, a.missing),
        target_shift=target[0],
        target_spread=target[1],
        count=a.count + b.count,
    )


def _combine(
    what: str, count_a: int, a: tuple[float, float], count_b: int, b: tuple[float, float]
) -> tuple[float, float]:
    """Return mean and spread of two sets of rows from (mean, spread) of each; one of no rows has no say."""
    if not count_a or not count_b:
        return a if count_a else b
    share = count_b / (count_a + count_b)
    # Equal means leave a delta of exactly 0, so that what is constant in all silos stays constant.
    delta = b[0] - a[0]
    # A hypotenuse, not the root of squares: it neither overflows nor underflows on the way.
    spread = math.hypot(a[1] * math.sqrt(1 - share), b[1] * math.sqrt(share), delta * math.sqrt(share * (1 - share)))
    mean = a[0] + delta * share
    if not math.isfinite(spread) or not math.isfinite(mean):
        raise UserError(f"{what} has numbers too large to scale, {a[0]} and {b[0]}; divide them by a power of ten")
    return mean, spread


def _by_column(schema: Schema) -> dict[str, tuple[float, float]]:
    scaling = zip(schema.inputs, schema.shift, schema.spread, strict=True)
    return {each.column: (shift, spread) for each, shift, spread in scaling if each.scaled}


def _counted(a: Schema, b: Schema, column: str, words: Sequence[str]) -> tuple[int, ...]:
    """Return how many rows of both have each word."""
    counts: Counter[str] = Counter()
    for schema in (a, b):
        told = zip(schema.categories.get(column, ()), schema.word_counts.get(column, ()), strict=True)
        counts.update(dict(told))
    return tuple(counts[word] for word in words)
