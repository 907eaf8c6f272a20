"""Silos as their files hold them: a folder with an entry for each, or one table with a column that names them.

Nothing is agreed on, scaled or encoded here: that is `schema`'s work, as no silo sees another's rows.
"""

from __future__ import annotations

import os.path  # it answers where Path would raise: in a folder that may not be searched
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedamp import checks
from fedamp.data.silos.files.content import check_encoding, file_bytes
from fedamp.data.silos.files.csv_file import read_csv
from fedamp.data.silos.files.joined import join_parts
from fedamp.data.silos.files.npz_file import read_npz
from fedamp.data.silos.files.parquet_file import read_parquet
from fedamp.data.silos.files.picture_folder import ENDINGS as PICTURES
from fedamp.data.silos.files.picture_folder import is_picture_folder, read_pictures
from fedamp.data.silos.files.table import POLICIES, Table, Wanted, silos_of
from fedamp.data.silos.one_line import shown
from fedamp.data.silos.raw import RawSilo
from fedamp.errors import UserError

LABEL = "label"  # the column with the labels, unless another is named
TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
KINDS = (*TABLES, ".npz")
EXPECTED = "expected .csv, .tsv (or these gzipped), .parquet or .npz"


def read_silos(
    folder: Path,
    label: str | None = None,
    drop: Collection[str] = (),
    *,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
    missing: str = "refuse",
    silo_column: str | None = None,
) -> list[RawSilo]:
    """Return the silos of a folder, or of one file, ordered by name as text; a silo's number is its place."""
    wanted = wanted_of(label, drop, columns, encoding, missing, silo_column)
    if silo_column is None:
        return [_read(path, wanted) for path in find_silos(folder).values()]
    _check_one_table(Path(folder), silo_column)
    return _explained(Path(folder), wanted)


def count_silos(folder: Path, silo_column: str | None = None, encoding: str | None = None) -> int:
    """Return how many silos a folder has, of which none is read, or how many a file's column names."""
    if silo_column is None:
        return len(find_silos(folder))
    _check_one_table(Path(folder), silo_column)
    names = read_table(Path(folder), Wanted(columns=(), encoding=encoding, silo_column=silo_column)).silos
    return len(np.unique([] if names is None else names))


def find_silos(folder: Path) -> dict[str, Path]:
    """Return where each silo of a folder is, in the order of their names; none is read.

    Hidden files are ignored. Whatever else is not a silo is an error: better than a hospital left out by a typo.
    """
    folder = Path(folder)
    where = shown(folder)
    if not os.path.exists(folder):
        if folder.suffix.lower() in (*KINDS, ".gz"):
            raise UserError(f"there is no file {where}")
        raise UserError(f"there is no folder {where}; expected one with a file or a sub-folder for each silo")
    if not os.path.isdir(folder):
        raise UserError(
            f"{where} is a file, and a file alone is not a federation; name the column that says whose row it is with "
            "--silo-column, or give a folder with a file or a sub-folder for each silo"
        )
    found: dict[str, Path] = {}
    for path in _entries(folder):
        name = silo_name(path)
        if not os.path.isdir(path):
            _check_kind(path)
        if name in found:
            raise UserError(
                f"silo {name!r} appears twice in {where}, as {found[name].name!r} and as {path.name!r}; "
                "expected one entry for each silo"
            )
        found[name] = path
    if not found:
        raise UserError(f"there are no silos in {where}; expected NAME.csv, NAME.npz or a sub-folder for each")
    return dict(sorted(found.items()))


def read_silo(
    path: Path,
    label: str | None = None,
    drop: Collection[str] = (),
    *,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
    missing: str = "refuse",
    agreed: bool = False,
) -> RawSilo:
    """Return the silo in a file, or in a sub-folder whose files follow one another in the order of their names.

    `label` names a table's column with the labels, "label" by default; an npz file has them in `y`, and pictures are
    in a folder for each. `drop` names columns to leave out, if they are there; `columns` the only ones to use.
    `missing` says what becomes of a missing cell: refuse it, keep it as nan or "", or drop its row. `agreed` if the
    names are those of a run or a plan.
    """
    return _read(Path(path), replace(wanted_of(label, drop, columns, encoding, missing, None), agreed=agreed))


def read_table(path: Path, wanted: Wanted) -> Table:
    """Return what is wanted of a table in a file; with no label in `wanted`, the rows need none."""
    try:
        content = file_bytes(path)
        return read_parquet(content, wanted) if ending(path) == ".parquet" else read_csv(content, wanted)
    except OSError as error:
        raise UserError(f"{shown(path)} can't be read: {error.strerror or error}") from error
    except UserError as error:
        raise UserError(f"{shown(path)}: {error}") from error


def ending(path: Path) -> str:
    """Return what kind of file this is by its name, in small letters: '.csv.gz', if it is gzipped."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def silo_name(path: Path) -> str:
    """Return what the silo in a file or folder is called."""
    return path.name if os.path.isdir(path) else path.name[: len(path.name) - len(ending(path))]


def wanted_of(
    label: str | None,
    drop: Collection[str],
    columns: Sequence[str] | None,
    encoding: str | None,
    missing: str,
    silo_column: str | None,
) -> Wanted:
    """Return what is wanted of each table; names that exclude one another are an error."""
    checks.one_of("way with missing cells", missing, POLICIES)
    if encoding is not None:
        check_encoding(encoding)
    label = LABEL if label is None else label
    for flag, names in (("--drop", drop), ("--columns", columns or ())):
        if label in names:
            done = "dropped" if flag == "--drop" else "learned from"
            raise UserError(f"column {label!r} is to be {done}, but it is the one to predict; leave it out of {flag}")
        if silo_column is not None and silo_column in names:
            raise UserError(f"column {silo_column!r} says whose row it is; leave it out of {flag}")
    if both := [column for column in columns or () if column in drop]:
        raise UserError(f"column {both[0]!r} is to be used and to be dropped; leave it out of --columns or --drop")
    if silo_column == label:
        raise UserError(f"column {label!r} is the one to predict, so it can't say whose row it is")
    return Wanted(label, None if columns is None else tuple(columns), tuple(drop), encoding, missing, silo_column)


def _check_one_table(path: Path, silo_column: str) -> None:
    if os.path.isdir(path):
        raise UserError(
            f"silo_column is {silo_column!r}, but {shown(path)} is a folder, with an entry for each silo; leave out "
            "--silo-column, or give one file"
        )
    if not os.path.exists(path):
        raise UserError(f"there is no file {shown(path)}")
    if ending(path) not in TABLES:
        raise UserError(f"{shown(path)} has no columns; expected .csv, .tsv (or these gzipped) or .parquet")


def _read(path: Path, wanted: Wanted) -> RawSilo:
    if not os.path.exists(path):
        raise UserError(f"there is no file or folder {shown(path)}; {EXPECTED}, or a folder of them")
    if not os.path.isdir(path):
        return _read_file(path, silo_name(path), wanted)
    parts = _entries(path)
    if is_picture_folder(parts):
        return read_pictures(path.name, parts)
    for part in parts:
        _check_kind(part)
    if not parts:
        raise UserError(f"the silo {shown(path)} is an empty folder; {EXPECTED} in it, or folders of pictures")
    if len({ending(part) == ".npz" for part in parts}) > 1:
        raise UserError(f"the silo {shown(path)} has tables and .npz files; expected files of one kind")
    return join_parts(path, parts, [_read_file(part, path.name, wanted) for part in parts])


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UserError(f"the folder {shown(folder)} can't be read: {error.strerror or error}") from error


def _check_kind(path: Path) -> None:
    if ending(path) in KINDS and os.path.isfile(path):
        return
    where = f"{path.name!r} in {shown(path.parent)} is not a silo's file"
    if ending(path) in PICTURES:
        raise UserError(f"{where}; expected pictures in a folder for each class: SILO/CLASS/{path.name}")
    raise UserError(f"{where}; {EXPECTED}: move it elsewhere, or start its name with a dot")


def _read_file(path: Path, name: str, wanted: Wanted) -> RawSilo:
    _check_kind(path)
    if ending(path) != ".npz":
        (silo,) = _explained(path, wanted, name)
        return silo
    try:
        with path.open("rb") as file:
            return read_npz(file, name)
    except OSError as error:
        raise UserError(f"{shown(path)} can't be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{shown(path)}: {error}") from error


def _explained(path: Path, wanted: Wanted, name: str = "") -> list[RawSilo]:
    """Return the silos in a table; an error names the file."""
    table = read_table(path, wanted)
    try:
        return silos_of(table, name, wanted)
    except UserError as error:
        raise UserError(f"{shown(path)}: {error}") from error
