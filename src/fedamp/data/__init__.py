"""Data: a name or a path -> arrays -> who gets which samples -> `Clients`.

Data sets are known by name. `digits` comes with the package. The others are read from files that `fedamp data fetch`
gets, or that you have (`published`). To add one, write a function that returns a `Dataset`, and give it a line in
`DATA`; if it has published files, also in `published.pictures.LOADERS` and `published.catalogue.SOURCES`.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path

from fedamp import checks
from fedamp.data.dataset import Dataset
from fedamp.data.digits import load_digits
from fedamp.data.published.catalogue import SOURCES, Source
from fedamp.data.published.folder import data_dir
from fedamp.data.published.pictures import LOADERS
from fedamp.data.published.status import Status, check, status


@functools.wraps(load_digits)
def _digits(folder: Path) -> Dataset:
    return load_digits()


# Each takes the data set's own folder; digits does not need it.
DATA: dict[str, Callable[[Path], Dataset]] = {"digits": _digits, **LOADERS}


def load_data(name: str, folder: Path | None = None) -> Dataset:
    """Return a data set by its name; a wrong name is an error that lists the right ones.

    `folder` holds the data sets, each in a folder named after it; by default it is `data_dir()`.

    >>> load_data("digits").input_shape
    (8, 8)
    """
    checks.one_of("data set", name, DATA)
    if name not in SOURCES:
        return DATA[name](Path())  # it has no files, so no folder is needed
    return DATA[name](data_dir(folder) / name)


def describe_data(name: str) -> str:
    """Return a data set's line for a listing, the first of its function's docstring; nothing is loaded."""
    checks.one_of("data set", name, DATA)
    return (inspect.getdoc(DATA[name]) or "").partition("\n")[0]


__all__ = [
    "DATA",
    "SOURCES",
    "Dataset",
    "Source",
    "Status",
    "check",
    "data_dir",
    "describe_data",
    "load_data",
    "load_digits",
    "status",
]
