"""A folder with one entry for each silo, read as it is: NAME.npz, NAME.csv, or a sub-folder NAME of such files.

Nothing is agreed on, scaled or encoded here: that is `schema`'s work, as no silo sees another's rows.
"""

from __future__ import annotations

import io
import os.path  # it answers where Path would raise: in a folder that may not be searched
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from fedamp.data.silos.cells import label_name
from fedamp.data.silos.csv_file import read_csv
from fedamp.data.silos.npz_file import read_npz
from fedamp.data.silos.one_line import differing_names, listed, shown
from fedamp.data.silos.raw import RawSilo
from fedamp.errors import UserError

LABEL = "label"  # the csv column with the labels, unless another is named
KINDS = (".csv", ".npz")


def read_silos(folder: Path, label: str | None = None, drop: Collection[str] = ()) -> list[RawSilo]:
    """Return the silos of a folder, ordered by name as text; a silo's number is its place."""
    return [read_silo(path, label, drop) for path in find_silos(folder).values()]


def count_silos(folder: Path) -> int:
    """Return how many silos a folder has; none is read."""
    return len(find_silos(folder))


def find_silos(folder: Path) -> dict[str, Path]:
    """Return where each silo of a folder is, in the order of their names; none is read.

    Hidden files are ignored. Whatever else is not a silo is an error: better than a hospital left out by a typo.
    """
    folder = Path(folder)
    where = shown(folder)
    if not os.path.exists(folder):
        if folder.suffix.lower() in KINDS:
            raise UserError(f"there is no file {where}")
        raise UserError(f"there is no folder {where}; expected one with a file or a sub-folder for each silo")
    if not os.path.isdir(folder):
        raise UserError(
            f"{where} is a file, and a file alone is not a federation; "
            "expected a folder with a file or a sub-folder for each silo"
        )
    found: dict[str, Path] = {}
    for path in _entries(folder):
        name = path.name if os.path.isdir(path) else path.stem
        if not os.path.isdir(path):
            _check_kind(path)
        if name in found:
            raise UserError(
                f"silo {name!r} appears twice in {where}, as {found[name].name!r} and as {path.name!r}; "
                "expected one entry for each silo"
            )
        found[name] = path
    if not found:
        raise UserError(f"there are no silos in {where}; expected NAME.npz, NAME.csv or a sub-folder for each")
    return dict(sorted(found.items()))


def read_silo(path: Path, label: str | None = None, drop: Collection[str] = ()) -> RawSilo:
    """Return the silo in a file, or in a sub-folder whose files follow one another in the order of their names.

    `label` names the csv column with the labels, "label" by default; an npz file has them in `y`.
    `drop` names csv columns to leave out, if they are there.
    """
    path = Path(path)
    if not os.path.exists(path):
        raise UserError(f"there is no file or folder {shown(path)}; expected a .npz or .csv file, or a folder of them")
    if not os.path.isdir(path):
        return _read_file(path, path.stem, label, drop)
    parts = _entries(path)
    for part in parts:
        _check_kind(part)
    if not parts:
        raise UserError(f"the silo {shown(path)} is an empty folder; expected .npz or .csv files in it")
    kinds = {part.suffix.lower() for part in parts}
    if len(kinds) > 1:
        raise UserError(f"the silo {shown(path)} has .csv and .npz files; expected files of one kind")
    return _join(path, parts, [_read_file(part, path.name, label, drop) for part in parts])


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UserError(f"the folder {shown(folder)} can't be read: {error.strerror or error}") from error


def _check_kind(path: Path) -> None:
    if path.suffix.lower() not in KINDS or not os.path.isfile(path):
        raise UserError(
            f"{path.name!r} in {shown(path.parent)} is not a silo's file; "
            "expected .npz or .csv: move it elsewhere, or start its name with a dot"
        )


def _read_file(path: Path, name: str, label: str | None, drop: Collection[str]) -> RawSilo:
    _check_kind(path)
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".npz":
                return read_npz(file, name)
            with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
                return read_csv(text, name, LABEL if label is None else label, drop)
    except OSError as error:
        raise UserError(f"{shown(path)} can't be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{shown(path)}: {error}") from error


def _join(folder: Path, paths: Sequence[Path], parts: Sequence[RawSilo]) -> RawSilo:
    """Return one silo with the rows of several files."""
    first = parts[0]
    if len(parts) == 1:
        return first
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
    words = {column: np.concatenate([part.words[column] for part in parts]) for column in first.words}
    dropped = tuple(dict.fromkeys(column for part in parts for column in part.dropped))
    return RawSilo(folder.name, np.concatenate(xs), np.concatenate(ys), first.columns, words, first.label, dropped)


def _difference(part: RawSilo, first: RawSilo) -> str:
    """Return in words what keeps a silo's file from being joined to its first; "" if nothing does."""
    if columns := differing_names("column", first.columns or (), part.columns or ()):
        return columns
    if mixed := sorted(set(part.words) ^ set(first.words)):
        return f"columns with words in one and numbers in the other: {listed(mixed)}"
    if part.x.shape[1:] != first.x.shape[1:]:
        return f"x has samples of shape {part.x.shape[1:]}, not {first.x.shape[1:]}"
    if (part.x.dtype == np.uint8) != (first.x.dtype == np.uint8):
        return f"x has type {part.x.dtype}, not {first.x.dtype}"
    return ""
