"""What a cell or a label holds: a number, a word or nothing; and a label's one name, however it is written."""

from __future__ import annotations

import math

import numpy as np

# Words are kept in arrays as wide as the longest, and each becomes an input: a text is not a category.
LONGEST_WORD = 200

MISSING = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "?")
"""Cells without a value, in small letters, as spreadsheets and programs write them. No column has them as words."""

PERHAPS_MISSING = ("-", ".", "none")
"""Without a value among numbers and dates. Among words they are words: a blood group is + or -, a complication none."""


def is_missing(text: str) -> bool:
    """Whether a cell has no value, in any column.

    >>> is_missing(" "), is_missing("NaN"), is_missing("-"), is_missing("0")
    (True, True, False, False)
    """
    return text.strip().lower() in MISSING


def is_perhaps_missing(text: str) -> bool:
    """Whether a cell has no value if its column has numbers or dates."""
    return text.strip().lower() in PERHAPS_MISSING


def as_number(text: str) -> float | int | None:
    """Return the number that a cell holds, None if it holds a word; NaN and infinity are numbers here.

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
