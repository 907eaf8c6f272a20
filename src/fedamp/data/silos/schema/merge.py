"""One schema from several: what all their rows together would have given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fedamp.data.silos.one_line import brief, listed
from fedamp.data.silos.schema.definition import Schema, inputs_of
from fedamp.data.silos.schema.layout import layout_difference
from fedamp.data.silos.targets import sorted_labels
from fedamp.errors import UserError


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
        difference = layout_difference(merged, schema.columns, schema.categories, schema.input_shape, schema.pictures)
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
    """Return the schema of the rows of both, whose layouts are the same."""
    categories = {column: tuple(sorted({*words, *b.categories[column]})) for column, words in a.categories.items()}
    inputs = inputs_of(a.columns or (), categories)
    if a.columns is not None:
        mine, other = _by_column(a), _by_column(b)
        scaling = [
            (0.0, 1.0)
            if column in categories
            else _combine(f"column {column!r}", a.count, mine[column], b.count, other[column])
            for _, column in inputs
        ]
    else:
        scaling = list(zip(a.shift, a.spread, strict=True))
        if not a.pictures:
            others = zip(b.shift, b.spread, strict=True)
            scaling = [
                _combine("x", a.count, ours, b.count, theirs) for ours, theirs in zip(scaling, others, strict=True)
            ]
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
    # A hypotenuse, not the root of squares: it neither overflows nor underflows on the way.
    spread = math.hypot(a[1] * math.sqrt(1 - share), b[1] * math.sqrt(share), delta * math.sqrt(share * (1 - share)))
    mean = a[0] + delta * share
    if not math.isfinite(spread) or not math.isfinite(mean):
        raise UserError(f"{what} has numbers too large to scale, {a[0]} and {b[0]}; divide them by a power of ten")
    return mean, spread


def _by_column(schema: Schema) -> dict[str, tuple[float, float]]:
    inputs = inputs_of(schema.columns or (), schema.categories)
    return {column: (u, v) for (_, column), u, v in zip(inputs, schema.shift, schema.spread, strict=True)}
