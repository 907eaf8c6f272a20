"""Labels and a seed -> who gets which samples; knows nothing of models, nor of the samples themselves.

A setting says how many samples of each class each client gets: a table of counts (m, C) for training and one for
testing, in a file of its own. Which samples these are is the same for all settings (`dealing`).

Symbols: m clients, C classes, c classes of a pathological client, n samples of a client, beta of Dirichlet.
"""

from dataclasses import fields
from typing import Any

from fedamp import checks
from fedamp.data.partition.base import Assignment, Setting
from fedamp.data.partition.dirichlet import Dirichlet
from fedamp.data.partition.iid import IID
from fedamp.data.partition.pathological import Pathological
from fedamp.data.partition.practical import Practical

SETTINGS: dict[str, type[Setting]] = {
    "iid": IID,
    "pathological": Pathological,
    "practical": Practical,
    "dirichlet": Dirichlet,
}


def make_setting(name: str, **parameters: Any) -> Setting:
    """Return a setting by its name; a wrong name or parameter is an error that lists the right ones.

    >>> make_setting("dirichlet", beta=0.1)
    Dirichlet(test_samples=100, share_samples=False, beta=0.1, min_samples=10)
    """
    checks.one_of("setting", name, SETTINGS)
    for given in parameters:
        checks.one_of(f"parameter of {name}", given, {f.name for f in fields(SETTINGS[name])})
    return SETTINGS[name](**parameters)


__all__ = ["IID", "SETTINGS", "Assignment", "Dirichlet", "Pathological", "Practical", "Setting", "make_setting"]
