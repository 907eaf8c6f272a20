"""One silo from several files, whose rows follow one another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedamp.data.silos.cells import label_name
from fedamp.data.silos.one_line import differing_names, listed, shown
from fedamp.data.silos.raw import RawSilo, with_kinds
from fedamp.errors import UserError


def join_parts(folder: Path, paths: Sequence[Path], parts: Sequence[RawSilo]) -> RawSilo:
    """Return one silo with the rows of several files."""
    if len(parts) == 1:
        return parts[0]
    known = {column for part in parts for column in part.words if column not in part.unknown}
    parts = [with_kinds(part, known) for part in parts]
    first = parts[0]
    for path, part in zip(paths[1:], parts[1:], strict=True):
        if difference := _difference(part, first):
            raise UserError(
                f"{shown(path)} doesn't fit {paths[0].name!r}, of the same silo: {difference}; expected the same in all"
            )
    ys = [part.y for part in parts]
    if any(y.dtype.kind == "U" for y in ys) and not all(y.dtype.kind == "U" for y in ys):
        # One file may have only numbers while another has words too: a label's name is the same in both.
        ys = [np.array([label_name(value) for value in y.tolist()]) for y in ys]
    orders = [[part.numeric.index(column) for column in first.numeric] for part in parts]
    xs = [part.x if first.columns is None else part.x[:, order] for part, order in zip(parts, orders, strict=True)]
    return RawSilo(
        folder.name,
        np.concatenate(xs),
        np.concatenate(ys),
        first.columns,
        {column: np.concatenate([part.words[column] for part in parts]) for column in first.words},
        first.label,
        tuple(dict.fromkeys(column for part in parts for column in part.dropped)),
        tuple(column for column in first.numeric if any(column in part.dates for part in parts)),
        left_out=sum(part.left_out for part in parts),
    )


def _difference(part: RawSilo, first: RawSilo) -> str:
    """Return in words what keeps a silo's file from being joined to its first; "" if nothing does."""
    if columns := differing_names("column", first.columns or (), part.columns or ()):
        return columns
    if mixed := sorted(set(part.words) ^ set(first.words)):
        return f"columns with words in one and numbers in the other: {listed(mixed)}"
    unknown = {*part.unknown, *first.unknown}
    if mixed := sorted(({*part.dates} ^ {*first.dates}) - unknown):
        return f"columns with dates in one and numbers in the other: {listed(mixed)}"
    if part.x.shape[1:] != first.x.shape[1:]:
        return f"x has samples of shape {part.x.shape[1:]}, not {first.x.shape[1:]}"
    if (part.x.dtype == np.uint8) != (first.x.dtype == np.uint8):
        return f"x has type {part.x.dtype}, not {first.x.dtype}"
    return ""
