"""A folder with one entry a silo, read as it is: NAME.npz, NAME.csv, or a sub-folder NAME of such files.

Nothing is agreed on, scaled or encoded here: that is `schema`'s work, as no silo sees another's rows.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import os.path  # its questions are answered where Path's raise: a folder that may not be searched
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedamp.errors import UserError

Array = NDArray[Any]

LABEL = "label"  # the csv column with the labels, unless another is named
KINDS = (".csv", ".npz")
# Words are kept in arrays as wide as the longest, and each becomes an input: a text is not a category.
LONGEST_WORD = 200


@dataclass(frozen=True, eq=False)  # eq: two arrays' == is an array, not an answer
class RawSilo:
    """The rows of one silo as its files hold them.

    From a csv file, `columns` are the features in the file's order; `x` has those that are numbers, in that order,
    and `words` has the others, by their names.
    """

    name: str
    x: Array  # (N, ...) float32, float64 or whole numbers
    y: Array  # (N,) numbers or str
    columns: tuple[str, ...] | None = None
    words: Mapping[str, Array] = field(default_factory=dict)  # column -> (N,) str
    label: str | None = None  # csv: the column that y is from

    def __post_init__(self) -> None:
        of = f"of silo {self.name!r}"
        if self.x.dtype.kind not in "iu" and self.x.dtype not in (np.float32, np.float64):
            raise UserError(f"x {of} has type {self.x.dtype}; expected float32, float64 or whole numbers")
        if self.y.dtype.kind not in "iufU":
            raise UserError(f"y {of} has type {self.y.dtype}; expected numbers or text")
        if self.x.ndim < 2:
            raise UserError(
                f"x {of} has shape {self.x.shape}; expected (samples, features) or more axes: "
                "a single feature is x[:, None]"
            )
        if self.y.ndim != 1:
            raise UserError(f"y {of} has shape {self.y.shape}; expected one axis, (samples,)")
        if len(self.x) != len(self.y):
            raise UserError(f"x {of} has {len(self.x)} rows and y has {len(self.y)}; expected one label for each")
        if not len(self.y):
            raise UserError(f"silo {self.name!r} has no rows; expected at least one")
        if not self.x[0].size and not self.words:
            raise UserError(f"x {of} has shape {self.x.shape}, so no features; expected at least one")
        self._check_columns()
        _check_finite(f"x {of}", self.x)
        _check_finite(f"y {of}", self.y)
        if self.y.dtype.kind == "U":
            empty = np.flatnonzero(np.char.str_len(np.char.strip(self.y)) == 0)
            if len(empty):
                raise UserError(f"y {of} is empty in row {empty[0]}; expected a label in every row")
            _check_words(f"y {of}", self.y)

    def _check_columns(self) -> None:
        of = f"of silo {self.name!r}"
        if self.columns is None:
            if self.words:
                raise UserError(f"silo {self.name!r} has words but no columns; expected the names of all columns")
            return
        if len(set(self.columns)) != len(self.columns) or not set(self.words) <= set(self.columns):
            raise UserError(
                f"columns {of} are {listed(self.columns)}, with words in {listed(self.words)}; "
                "expected each name once, and words in some of them"
            )
        if self.x.shape[1:] != (len(self.columns) - len(self.words),):
            raise UserError(
                f"x {of} has shape {self.x.shape} for {len(self.columns)} columns, {len(self.words)} of words; "
                "expected one number a row for each of the others"
            )
        for column, cells in self.words.items():
            if cells.dtype.kind != "U" or cells.shape != (len(self),):
                raise UserError(
                    f"column {column!r} {of} has type {cells.dtype} and shape {cells.shape}; "
                    f"expected words for each of {len(self)} rows"
                )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def numeric(self) -> tuple[str, ...]:
        """The names of x's columns, in order; none where the silo isn't a table."""
        return tuple(column for column in self.columns or () if column not in self.words)


def read_silos(folder: Path, label: str | None = None) -> list[RawSilo]:
    """Return the silos of a folder, ordered by name as text; a silo's number is its place."""
    return [read_silo(path, label) for path in find_silos(folder).values()]


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
                f"silo {name!r} is there twice in {where}, as {found[name].name!r} and as {path.name!r}; "
                "expected one entry for each silo"
            )
        found[name] = path
    if not found:
        raise UserError(f"there are no silos in {where}; expected NAME.npz, NAME.csv or a sub-folder for each")
    return dict(sorted(found.items()))


def read_silo(path: Path, label: str | None = None) -> RawSilo:
    """Return the silo in a file, or in a sub-folder whose files follow one another in the order of their names.

    `label` names the csv column with the labels, "label" by default; an npz file has them in `y`.
    """
    path = Path(path)
    if not os.path.exists(path):
        raise UserError(f"there is no silo {shown(path)}; expected a .npz or .csv file, or a folder of them")
    if not os.path.isdir(path):
        return _read_file(path, path.stem, label)
    parts = _entries(path)
    for part in parts:
        _check_kind(part)
    if not parts:
        raise UserError(f"the silo {shown(path)} is an empty folder; expected .npz or .csv files in it")
    kinds = {part.suffix.lower() for part in parts}
    if len(kinds) > 1:
        raise UserError(f"the silo {shown(path)} has .csv and .npz files; expected files of one kind")
    return _join(path, parts, [_read_file(part, path.name, label) for part in parts])


def shown(path: Path) -> str:
    """Return a path for an error's one line."""
    return str(path) if str(path).isprintable() else repr(str(path))


def brief(value: object, most: int = 60) -> str:
    """Return a value for an error's one line, cut where it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def listed(values: Iterable[object], most: int = 12) -> str:
    """Return values for an error's one line; of many, the first and the count of the others.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown_ones = [brief(value) for value in values]
    more = f" and {len(shown_ones) - most} more" if len(shown_ones) > most else ""
    return (", ".join(shown_ones[:most]) or "none") + more


def as_number(text: str) -> float | int | None:
    """Return the number that a cell holds, None where it holds a word; NaN and infinity are numbers here.

    >>> as_number(" 12 "), as_number("1e3"), as_number("1_000"), as_number("F")
    (12, 1000.0, None, None)
    """
    if "_" in text:  # Python reads 1_000 as a number, but a bank's A_1, 1_1 are words
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def label_name(value: object) -> str:
    """Return a label's name: the same for 1, 1.0 and "1", so that silos agree however each wrote it.

    >>> label_name(1.0), label_name("01"), label_name(0.5), label_name(" flu ")
    ('1', '1', '0.5', 'flu')
    """
    number = as_number(value) if isinstance(value, str) else value
    if isinstance(number, float | np.floating):
        return str(int(number)) if math.isfinite(number) and number == int(number) else repr(float(number))
    return str(value).strip() if number is None else str(number)


def _one_line(text: str, most: int = 160) -> str:
    """Return a text from elsewhere, cut where it is long, with nothing in it that would break a line."""
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= most else f"{text[: most - 3]}..."


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


def _read_file(path: Path, name: str, label: str | None) -> RawSilo:
    _check_kind(path)
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".npz":
                return _read_npz(file, name)
            with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
                return _read_csv(text, name, LABEL if label is None else label)
    except OSError as error:
        raise UserError(f"{shown(path)} can't be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{shown(path)}: {error}") from error


def _read_npz(file: IO[bytes], name: str) -> RawSilo:
    arrays = _load_npz(file)
    missing = [key for key in ("x", "y") if key not in arrays]
    if missing:
        raise UserError(
            f"there is no array {missing[0]!r} in the file, which has {listed(sorted(arrays))}; "
            "expected x (samples, ...) and y (samples,)"
        )
    x, y = arrays["x"], arrays["y"]
    # Of one width and byte order, so that later code has few types to know; uint8 stays, as it means pictures.
    if x.dtype == np.float16 or x.dtype.kind == "b":
        x = x.astype(np.float32)
    elif x.dtype.kind == "f" and x.dtype.itemsize > 8:
        x = x.astype(np.float64)
    y = y.astype(np.int64) if y.dtype.kind == "b" else y
    return RawSilo(name, x.astype(x.dtype.newbyteorder("="), copy=False), y)


def _load_npz(file: IO[bytes]) -> dict[str, Array]:
    """Return x and y of an npz file, with None for the other arrays: these are not read."""
    refused = ""
    try:
        # Warnings are for the author of a file; a silo's operator gets an array or an error.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                refused = "it holds a single array; save with np.savez(file, x=..., y=...)"
            else:
                arrays = {key: archive[key] if key in ("x", "y") else None for key in archive.files}
                for key in ("x", "y"):
                    array = arrays.get(key)
                    if array is not None and not isinstance(array, np.ndarray):
                        refused = refused or f"its entry {key!r} is not an array"
                    elif array is not None and array.dtype.kind == "U":
                        array.tolist()  # raises where a character is out of range
    except Exception as error:
        # Whatever a damaged archive makes zipfile, zlib or numpy raise, it comes to the same: this can't be read.
        if "Object arrays" in str(error):
            refused = "an array holds Python objects, which could run code; save numbers or fixed-width text"
        elif "pickle" in str(error):
            refused = "it is not a zip archive"
        else:
            refused = " ".join(str(error).split()) or type(error).__name__
    if refused:
        raise UserError(f"not a readable npz file ({_one_line(refused)}); expected one made by np.savez")
    return arrays  # type: ignore[return-value]


def _read_csv(file: IO[str], name: str, label: str) -> RawSilo:
    header, rows, lines = _read_rows(file)
    if label not in header:
        near = difflib.get_close_matches(label, header, n=1, cutoff=0.5)
        hint = f" (did you mean {brief(near[0])}?)" if near else ""
        if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
            hint = "; expected commas between cells"
        raise UserError(f"there is no label column {label!r}{hint}; the columns are {listed(header)}")
    if len(header) < 2:
        raise UserError(f"the only column is {label!r}; expected features beside the labels")
    if not rows:
        raise UserError("there is a header and no rows; expected at least one row")
    numbers: list[NDArray[np.float64]] = []
    words: dict[str, Array] = {}
    y: Array = np.empty(0)
    for column, cells in zip(header, zip(*rows, strict=True), strict=True):
        if column == label:
            y = _labels(column, cells, lines)
            continue
        values = _numbers(column, cells, lines)
        if values is None:
            words[column] = np.array(cells)
        else:
            numbers.append(values)
    x = np.stack(numbers, axis=1) if numbers else np.empty((len(rows), 0))
    return RawSilo(name, x, y, tuple(column for column in header if column != label), words, label)


def _read_rows(file: IO[str]) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the header, the rows, and the line on which each row starts; blanks around a cell don't count."""
    header: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    # strict: without it a quote left open swallows the rest of the file in silence.
    reader = csv.reader(file, strict=True)
    end = 0
    try:
        for row in reader:
            start, end = end + 1, reader.line_num
            cells = [cell.strip() for cell in row]
            if not cells:  # an empty line
                continue
            if any("\0" in cell for cell in cells):
                raise UserError(f"line {start} has a zero byte; expected text, in utf-8")
            if not header:
                header = cells
                _check_header(header)
                continue
            if len(cells) != len(header):
                raise UserError(f"line {start} has {len(cells)} cells; expected {len(header)}, as in the header")
            rows.append(cells)
            lines.append(start)
    except UnicodeDecodeError as error:
        raise UserError(f"not text in utf-8 ({error.reason} after line {end}); save it as utf-8") from error
    except csv.Error as error:
        raise UserError(
            f"line {end + 1} is not csv ({_one_line(str(error))}); expected commas and closed quotes"
        ) from error
    if not header:
        raise UserError("the file is empty; expected a header and rows")
    return header, rows, lines


def _check_header(header: Sequence[str]) -> None:
    seen: set[str] = set()
    for place, column in enumerate(header, 1):
        if not column:
            raise UserError(
                f"column {place} has no name in the header; name it or drop it (pandas: to_csv with index=False)"
            )
        if len(column) > LONGEST_WORD:
            raise UserError(f"the name of column {place} has {len(column)} characters; expected a header line")
        if column in seen:
            raise UserError(f"column {column!r} is there twice; expected each name once")
        seen.add(column)


def _numbers(column: str, cells: Sequence[str], lines: Sequence[int]) -> NDArray[np.float64] | None:
    """Return a column's numbers; None where no cell is a number, which makes it a column of words."""
    try:  # what most columns need; asking of each cell what it is nearly doubles the time
        fast = np.array([float(cell) for cell in cells])
        if np.isfinite(fast).all() and not any("_" in cell for cell in cells):
            return fast
    except ValueError:
        pass
    values = [as_number(cell) for cell in cells]
    wordy = [i for i, value in enumerate(values) if value is None]
    missing = [i for i, (value, cell) in enumerate(zip(values, cells, strict=True)) if not _usable(value, cell)]
    if missing:
        cell = cells[missing[0]]
        raise UserError(
            f"line {lines[missing[0]]}, column {column!r} "
            f"{f'is {brief(cell)}' if cell else 'is empty'}; expected a finite number or a word in every row"
        )
    if len(wordy) == len(cells):
        long = [i for i, cell in enumerate(cells) if len(cell) > LONGEST_WORD]
        if long:
            raise UserError(
                f"line {lines[long[0]]}, column {column!r} has a text of {len(cells[long[0]])} characters; "
                f"expected numbers, or words of up to {LONGEST_WORD}: drop the column"
            )
        return None
    raise UserError(
        f"line {lines[wordy[0]]}, column {column!r} is {brief(cells[wordy[0]])}, which is not a number; "
        f"{len(cells) - len(wordy)} of {len(cells)} rows have one: expected numbers in all, or words in all"
    )


def _labels(column: str, cells: Sequence[str], lines: Sequence[int]) -> Array:
    """Return labels as whole numbers where all are, else as numbers, else as text."""
    values = [as_number(cell) for cell in cells]
    for line, cell, value in zip(lines, cells, values, strict=True):
        if not _usable(value, cell):
            raise UserError(
                f"line {line}, column {column!r} {f'is {brief(cell)}' if cell else 'is empty'}; "
                "expected a label in every row"
            )
        if len(cell) > LONGEST_WORD:
            raise UserError(
                f"line {line}, column {column!r} has {len(cell)} characters; expected a label of up to {LONGEST_WORD}"
            )
    limit = np.iinfo(np.int64).max
    if all(isinstance(value, int) and -limit <= value <= limit for value in values):
        return np.array(values, dtype=np.int64)
    # A whole number beyond 64 bits names a class, and a float would merge it with its neighbours.
    if all(isinstance(value, float) or (value is not None and abs(value) <= limit) for value in values):
        return np.array(values, dtype=np.float64)
    return np.array(cells)


def _usable(value: float | int | None, cell: str) -> bool:
    """Whether a cell holds a word or a number that a float can hold."""
    return bool(cell) if value is None else abs(value) <= sys.float_info.max


def _check_finite(what: str, array: Array) -> None:
    if array.dtype.kind != "f":
        return
    finite = np.isfinite(array)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), array.shape)
        within = f" at {tuple(int(i) for i in place[1:])}" if array.ndim > 1 else ""
        raise UserError(f"{what} is {float(array[place])} in row {place[0]}{within}; expected finite numbers")


def _check_words(what: str, words: Array) -> None:
    lengths = np.char.str_len(words)
    if lengths.max() > LONGEST_WORD:
        raise UserError(
            f"{what} has {lengths.max()} characters in row {lengths.argmax()}; expected labels of up to {LONGEST_WORD}"
        )


def _join(folder: Path, paths: Sequence[Path], parts: Sequence[RawSilo]) -> RawSilo:
    """Return one silo of the rows of several files."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for path, part in zip(paths[1:], parts[1:], strict=True):
        what = ""
        if set(part.columns or ()) != set(first.columns or ()):
            only = set(part.columns or ()) - set(first.columns or ())
            lacks = set(first.columns or ()) - set(part.columns or ())
            what = f"the columns differ (only here: {listed(sorted(only))}; lacking: {listed(sorted(lacks))})"
        elif set(part.words) != set(first.words):
            which = sorted(set(part.words) ^ set(first.words))
            what = f"the columns {listed(which)} hold words in one and numbers in the other"
        elif part.x.shape[1:] != first.x.shape[1:]:
            what = f"x has samples of shape {part.x.shape[1:]} and not {first.x.shape[1:]}"
        elif (part.x.dtype == np.uint8) != (first.x.dtype == np.uint8):
            what = f"x has type {part.x.dtype} and not {first.x.dtype}"
        if what:
            raise UserError(
                f"{shown(path)} doesn't fit {paths[0].name!r}, of the same silo: {what}; expected the same in all"
            )
    ys = [part.y for part in parts]
    if any(y.dtype.kind == "U" for y in ys) and not all(y.dtype.kind == "U" for y in ys):
        # One file may have numbers only where another has words too: a label's name is the same in both.
        ys = [np.array([label_name(value) for value in y.tolist()]) for y in ys]
    orders = [[part.numeric.index(column) for column in first.numeric] for part in parts]
    xs = [part.x if first.columns is None else part.x[:, order] for part, order in zip(parts, orders, strict=True)]
    words = {column: np.concatenate([part.words[column] for part in parts]) for column in first.words}
    return RawSilo(folder.name, np.concatenate(xs), np.concatenate(ys), first.columns, words, first.label)
