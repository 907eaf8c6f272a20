"""A table as one of its readers gives it, and the silos that its rows make."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedamp.data.silos.cells import LONGEST_WORD
from fedamp.data.silos.files.columns import Cells, Column, Place, check_present, read_column, read_labels
from fedamp.data.silos.files.decimals import check_marks
from fedamp.data.silos.one_line import brief, listed
from fedamp.data.silos.raw import Array, RawSilo
from fedamp.errors import UserError

ROWS_AT_ONCE = 4096
"""Columns become rows in blocks that stay in the processor's cache."""
POLICIES = ("refuse", "keep", "drop")


@dataclass(frozen=True)
class Wanted:
    """What of a table is read, and how."""

    label: str | None = None  # the column to predict; None if the rows have none yet
    columns: tuple[str, ...] | None = None  # the features; by default all other columns of the file
    drop: Collection[str] = ()  # columns to leave out, where they are
    encoding: str | None = None  # of a file without a mark that is not utf-8
    missing: str = "refuse"  # what becomes of missing cells: an error, nan or "", or their rows are left out
    silo_column: str | None = None  # the column that says whose row it is, of a file with several silos
    agreed: bool = False  # the label and the columns are those of a run or a plan: nobody chooses others here

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that the file must have."""
        return tuple(column for column in (self.label, self.silo_column, *(self.columns or ())) if column is not None)

    def read(self, header: Sequence[str]) -> list[str]:
        """Return the columns of a file that are read, in its order: features, the label, and whose row it is."""
        chosen = {*self.features(header), self.label, self.silo_column}
        return [column for column in header if column in chosen]

    def features(self, header: Sequence[str]) -> list[str]:
        """Return the features among a file's columns, in its order; a name that it does not have is an error."""
        check_header(header)
        self._check_named(header)
        others = (self.label, self.silo_column, *self.drop)
        features = [each for each in header if each not in others and (self.columns is None or each in self.columns)]
        if not features and self.label is not None:
            raise UserError(f"the only column is {self.label!r}; expected features besides the labels")
        return features

    def _check_named(self, header: Sequence[str]) -> None:
        for name in self.named:
            if name in header:
                continue
            kind, cure = "column", "correct --columns"
            if name == self.label:
                kind, cure = "label column", "name the column to predict with --label (label= in Python)"
            elif name == self.silo_column:
                kind, cure = "silo column", "name the column that says whose row it is with --silo-column"
            if self.agreed:
                cure = "add it, or give it the name that all others call it by"
            near = difflib.get_close_matches(name, header, n=1, cutoff=0.6)
            hint = f" (did you mean {brief(near[0])}?)" if near else ""
            raise UserError(f"there is no {kind} {name!r}{hint}; the columns are {listed(header)}; {cure}")


@dataclass(frozen=True)
class Table:
    """The rows of a file, by columns."""

    features: Mapping[str, Column]  # in the file's order
    labels: Column | None
    silos: Array | None  # (N,) str: whose row it is
    dropped: tuple[str, ...]  # columns of the file that were left out


class Source:
    """A file that has been taken apart into columns of text; a kind of file may know shorter ways to their values."""

    separator = ","

    def place(self, row: int) -> str:
        """Return where a row stands in the file, for people."""
        return f"row {row + 1}"

    def cells(self, column: str) -> Cells:
        """Return the cells of a column, as text."""
        raise NotImplementedError

    def feature(self, column: str, missing: str) -> Column:
        """Return a column of features."""
        return read_column(column, self.cells(column), self.place, missing, self.separator)

    def labels(self, column: str, missing: str) -> Column:
        """Return the column to predict."""
        return read_labels(column, self.cells(column), self.place, missing, self.separator)


def make_table(header: Sequence[str], source: Source, wanted: Wanted) -> Table:
    """Return what is wanted of a file's columns."""
    chosen = set(wanted.features(header))
    features, labels, silos = {}, None, None
    for column in header:
        if column in chosen:
            features[column] = source.feature(column, wanted.missing)
        elif column == wanted.label:
            labels = source.labels(column, wanted.missing)
        elif column == wanted.silo_column:
            silos = silo_names(column, source.cells(column), source.place)
    marks = {column: read.marks for column, read in features.items()}
    if labels is not None and wanted.label is not None:
        marks[wanted.label] = labels.marks
    check_marks(marks, source.separator, source.place)
    return Table(features, labels, silos, tuple(each for each in header if each not in chosen and each != wanted.label))


def silo_names(column: str, cells: Cells, place: Place) -> Array:
    """Return whose row each is (N,); a number is a name too, and so is NA: it may be Namibia's."""
    empty = [i for i, text in enumerate(cells.texts) if text.lower() in ("", "nan", "null", "#n/a")]
    check_present(column, cells, empty, place, "expected a silo's name in every row", "write whose row it is")
    long = [i for i, text in enumerate(cells.texts) if len(text) > LONGEST_WORD]
    if long:
        raise UserError(
            f"{place(cells.first(long))}, column {column!r} has a text of more than {LONGEST_WORD} characters; "
            "expected the name of a silo"
        )
    return np.array(cells.texts)[cells.codes]


def silos_of(table: Table, name: str, wanted: Wanted) -> list[RawSilo]:
    """Return the silos that a table's rows make: one, or one for each name in the silo column, ordered by name."""
    assert table.labels is not None, "rows without labels are no silo's"
    everyone = np.ones(len(table.labels.values), dtype=bool)
    lacking = [column.lacking for column in (*table.features.values(), table.labels) if column.lacking is not None]
    kept = ~np.logical_or.reduce(lacking) if lacking and wanted.missing == "drop" else everyone
    if table.silos is None:
        return [_silo(table, name, wanted, kept, everyone)]
    names, codes = np.unique(table.silos, return_inverse=True)
    whose = [(str(each), codes == i) for i, each in enumerate(names)]
    return [_silo(table, each, wanted, kept, mine) for each, mine in whose]


def _silo(table: Table, name: str, wanted: Wanted, kept: NDArray[np.bool_], mine: NDArray[np.bool_]) -> RawSilo:
    """Return one silo, of whose rows, `mine`, some are kept."""
    assert table.labels is not None
    places = np.flatnonzero(mine & kept)
    count, rows = len(places), int(mine.sum())
    if not count:
        raise UserError(f"none of the {rows} rows of silo {name!r} is complete{_emptiest(table, mine)}")
    chosen = slice(None) if count == len(mine) else places
    numeric = [column for column in table.features.values() if column.values.dtype.kind == "f"]
    x = np.empty((count, len(numeric)))
    values = [column.values[chosen] for column in numeric]
    for start in range(0, count, ROWS_AT_ONCE):
        rows_of_x = slice(start, start + ROWS_AT_ONCE)
        for place, column in enumerate(values):
            x[rows_of_x, place] = column[rows_of_x]
    return RawSilo(
        name,
        x,
        table.labels.values[chosen],
        tuple(table.features),
        {each: read.values[chosen] for each, read in table.features.items() if read.values.dtype.kind == "U"},
        wanted.label,
        table.dropped,
        tuple(each for each, read in table.features.items() if read.dates),
        left_out=rows - count,
    )


def _emptiest(table: Table, mine: NDArray[np.bool_]) -> str:
    """Return in words which column lacks most cells of a silo's rows, and what to do."""
    columns = table.features.items()
    absent = {name: int(each.lacking[mine].sum()) for name, each in columns if each.lacking is not None}
    if not any(absent.values()):
        return ": no row has a label"
    name = max(absent, key=lambda each: absent[each])
    return f", so --missing drop leaves none: column {name!r} lacks {absent[name]} cells; leave it out with --drop"


def check_header(header: Sequence[str]) -> None:
    """Raise unless every column has a name of its own."""
    seen: set[str] = set()
    for place, column in enumerate(header, 1):
        if not column:
            raise UserError(
                f"column {place} has no name in the header; name it or drop it (pandas: to_csv with index=False)"
            )
        if len(column) > LONGEST_WORD:
            raise UserError(f"the name of column {place} has {len(column)} characters; expected a header of names")
        if column in seen:
            raise UserError(f"column {column!r} appears twice; expected each name once")
        seen.add(column)
