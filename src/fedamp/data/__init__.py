"""The data sets, by name. Each is one short file with a function; adding one is a file and a line here."""

import inspect
from collections.abc import Callable

from fedamp import checks
from fedamp.data.dataset import Dataset
from fedamp.data.digits import load_digits

DATA: dict[str, Callable[[], Dataset]] = {
    "digits": load_digits,
}


def load_data(name: str) -> Dataset:
    """Return a data set by its name; a wrong name is an error that lists the right ones.

    >>> load_data("digits").input_shape
    (8, 8)
    """
    checks.one_of("data set", name, DATA)
    return DATA[name]()


def describe_data(name: str) -> str:
    """Return a data set's line for a listing, the first of its function's docstring; nothing is loaded."""
    checks.one_of("data set", name, DATA)
    return (inspect.getdoc(DATA[name]) or "").partition("\n")[0]


__all__ = ["DATA", "Dataset", "describe_data", "load_data", "load_digits"]
