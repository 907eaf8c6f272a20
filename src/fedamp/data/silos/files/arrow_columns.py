"""Columns of text that pyarrow holds: their different cells, and a short way to plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedamp.data.silos.cells import MISSING, PERHAPS_MISSING
from fedamp.data.silos.files.columns import Cells, Column
from fedamp.data.silos.files.dates import DAY
from fedamp.data.silos.files.decimals import GROUP_COMMA, GROUP_POINT, NO_MARKS, WITH_COMMAS, Marks

FEW = 2**14  # different cells that are looked at one by one: no column of words has more
TIMES = r"\A(?:[1-9][0-9]{3}|0[1-9][0-9]{2})-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?\z"
LARGEST = 2.0**62  # whole numbers beyond may not be labels as they stand


def cells_of(column: Any) -> Cells:
    """Return a column's cells with each different text once, blanks around it removed; null is empty."""
    coded = column.dictionary_encode().combine_chunks()
    codes = coded.indices.to_numpy(zero_copy_only=False)
    texts = [text.strip() for text in coded.dictionary.to_pylist()]
    if coded.null_count:
        codes = np.where(np.isnan(codes), len(texts), codes)
        texts.append("")
    return Cells(texts, codes.astype(np.int64))


def fast_feature(column: Any, separator: str) -> Column | None:
    """Return a column of numbers, perhaps with missing ones; None if its cells must be looked at one by one."""
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import compute as pc

    plain = _numbers(column)
    if plain is not None:
        marks = NO_MARKS if separator == "," else _marks(column, ".", GROUP_POINT)
        return None if marks is None else Column(plain, marks=marks)
    if column.null_count or pc.count_distinct(column).as_py() <= FEW:
        return None
    trimmed = pc.utf8_trim_whitespace(column)
    lacking = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array([*MISSING, *PERHAPS_MISSING]))
    known = pc.if_else(lacking, None, trimmed)
    dates = False
    values = _numbers(known)
    if values is not None:
        marks = NO_MARKS if separator == "," else _marks(known, ".", GROUP_POINT)
    elif separator != "," and pc.all(pc.match_substring_regex(known, rf"\A{WITH_COMMAS}\z")).as_py():
        values = _numbers(pc.replace_substring(known, ",", "."))
        marks = _marks(known, ",", GROUP_COMMA)
    else:
        values, marks, dates = _times(known), NO_MARKS, True
    absent = lacking.to_numpy()
    if values is None or marks is None or absent.all():
        return None
    return Column(values, absent if absent.any() else None, dates, marks)


def fast_labels(column: Any, separator: str) -> Column | None:
    """Return labels that are all plain numbers, with points or without; None if they must be looked at one by one."""
    from pyarrow import ArrowInvalid, int64
    from pyarrow import compute as pc

    values = _numbers(column)
    if values is None or not len(values) or np.abs(values).max() > LARGEST:
        return None
    whole = pc.match_substring_regex(column, r"\A-?[0-9]+\z")
    try:
        if pc.all(whole).as_py():
            return Column(pc.cast(column, int64()).to_numpy())
    except ArrowInvalid:
        return None
    if pc.any(pc.match_substring(column, "+")).as_py():
        return None
    marks = NO_MARKS if separator == "," else _marks(column, ".", GROUP_POINT)
    return None if marks is None else Column(values, marks=marks)


def _numbers(column: Any) -> NDArray[np.float64] | None:
    """Return a column's numbers, with nan for null; None if some cell is not a plain, finite one."""
    from pyarrow import ArrowInvalid, float64
    from pyarrow import compute as pc

    try:
        numbers = pc.cast(column, float64())
    except ArrowInvalid:
        return None
    values: NDArray[np.float64] = numbers.to_numpy()
    # nan only where there is null: a cell nan or inf is looked at elsewhere.
    finite = int(np.isfinite(values).sum())
    return values if finite == len(values) - numbers.null_count else None


def _marks(column: Any, mark: str, grouped: str) -> Marks | None:
    """Return what a column's numbers tell about decimal marks; None if all are doubtful."""
    from pyarrow import compute as pc

    marked = column.filter(pc.match_substring(column, mark))
    if not len(marked):
        return NO_MARKS
    head = marked.slice(0, 1000)
    for part in (head, marked):
        if not pc.all(pc.match_substring_regex(part, rf"\A{grouped}\z")).as_py():
            return Marks(comma=mark == ",", point=mark == ".")
    return None


def _times(column: Any) -> NDArray[np.float64] | None:
    """Return a column of days with times, without a zone, as days; None if some cell is another text."""
    from pyarrow import ArrowInvalid, timestamp
    from pyarrow import compute as pc

    if not pc.all(pc.match_substring_regex(column, TIMES)).as_py():
        return None
    try:
        return days_in(pc.cast(column, timestamp("us")))
    except ArrowInvalid:  # no such day
        return None


def days_in(column: Any) -> NDArray[np.float64]:
    """Return dates and times as days since 1970-01-01, null as nan; pyarrow keeps times with a zone in UTC."""
    import pyarrow as pa
    from pyarrow import compute as pc
    from pyarrow import types

    if types.is_date32(column.type):
        column = pc.cast(column, pa.timestamp("s"))
    unit = "ms" if types.is_date64(column.type) else column.type.unit
    ticks = {"s": DAY // 10**6, "ms": DAY // 1000, "us": DAY, "ns": DAY * 1000}[unit]
    since = pc.cast(column, pa.int64())
    days, rest = np.divmod(pc.fill_null(since, 0).to_numpy(), ticks)
    numbers = days + rest / ticks
    numbers[pc.is_null(since).to_numpy()] = np.nan
    return np.asarray(numbers, dtype=np.float64)
