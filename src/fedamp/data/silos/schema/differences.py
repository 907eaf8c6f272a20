"""What differs between two schemas, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fedamp.data.silos.one_line import listed
from fedamp.data.silos.schema.definition import Schema


def schema_differences(a: Schema, b: Schema) -> list[str]:
    """Return in words what differs between two schemas; none if they are the same."""
    lines = []
    plain = ("task", "label", "input_shape", "pictures", "count", "target_shift", "target_spread")
    for name in (*plain, "missing", "indicate", "version"):
        if getattr(a, name) != getattr(b, name):
            lines.append(f"{name} is {getattr(a, name)} in the first and {getattr(b, name)} in the second")
    if (a.columns is None) != (b.columns is None):
        lines.append("one has columns and the other has none")
    lines += _name_differences("columns", a.columns or (), b.columns or ())
    for what in ("dropped", "others", "kept", "dates"):
        lines += _name_differences(what, getattr(a, what), getattr(b, what))
    lines += _name_differences("labels", a.labels or (), b.labels or ())
    for column in [*a.categories, *(column for column in b.categories if column not in a.categories)]:
        lines += _name_differences(f"words of {column!r}", a.categories.get(column, ()), b.categories.get(column, ()))
    for column in dict.fromkeys([*a.missing_cells, *b.missing_cells]):
        rows = [schema.missing_cells.get(column, 0) for schema in (a, b)]
        if rows[0] != rows[1]:
            lines.append(f"{column!r} is missing in {rows[0]} rows of the first and {rows[1]} of the second")
    for column in a.word_counts.keys() & b.word_counts.keys():
        first, second = (dict(zip(each.categories[column], each.word_counts[column], strict=True)) for each in (a, b))
        if differing := [word for word in first if word in second and first[word] != second[word]]:
            lines.append(f"how often words of {column!r} occur differs: {listed(differing, 3)}")
    # Side by side only if both have the same inputs: what else differs is said above.
    if a.input_shape == b.input_shape and a.features == b.features and a.pictures == b.pictures:
        names = a.features or tuple(f"input {i}" for i in range(len(a.shift)))
        for what, ours, theirs in (("shift", a.shift, b.shift), ("spread", a.spread, b.spread)):
            differing = [
                f"{name} {u} and {v}"
                for name, u, v in zip(names if len(ours) > 1 else ("x",), ours, theirs, strict=True)
                if u != v
            ]
            if differing:
                more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
                lines.append(f"{what} differs: {', '.join(differing[:3])}{more}")
    return lines


def _name_differences(what: str, ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    lines = []
    first = [name for name in ours if name not in theirs]
    second = [name for name in theirs if name not in ours]
    if first:
        lines.append(f"{what} only in the first: {listed(first)}")
    if second:
        lines.append(f"{what} only in the second: {listed(second)}")
    if not lines and tuple(ours) != tuple(theirs):
        lines.append(f"{what} are in a different order: {listed(ours)} and {listed(theirs)}")
    return lines
