"""Data: a name or a path -> arrays -> who gets which samples -> `Clients`.

Data sets are known by name. `digits` comes with the package. The others are read from files that `fedamp data fetch`
gets, or that you have (`published`). To add one, write a function that returns a `Dataset`, and give it a line in
`DATA`; where it has published files, in `published.pictures.LOADERS` and `published.catalogue.SOURCES`.
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


# Each takes the data set's own folder; digits has no need of it.
DATA: dict[str, Callable[[Path], Dataset]] = {"digits": _digits, **LOADERS}


def load_data(name: str, folder: Path | None = None) -> Dataset:
    """Return a data set by its name; a wrong name is an error that lists the right ones.

    `folder` is where the data sets lie, each in a folder of its name; without it, `data_dir` says where.

    >>> load_data("digits").input_shape
    (8, 8)
    """
    checks.one_of("data set", name, DATA)
    if name not in SOURCES:
        return DATA[name](Path())  # it has no files, so that no folder need be known
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
