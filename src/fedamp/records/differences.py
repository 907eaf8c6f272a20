"""What differs between configurations: the one place that flattens and compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

UNSET = "not set"


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return in words what differs between two configurations, as `RunConfig.to_dict` gives them.

    >>> differences({"method": {"name": "fedamp"}, "seed": 0}, {"method": {"name": "apfl"}, "seed": 0})
    ["method.name is 'fedamp' there and 'apfl' here"]
    """
    tables = flat(there), flat(here)
    said = [{key: repr(value) for key, value in table.items()} for table in tables]
    return [
        f"{key} is {said[0].get(key, UNSET)} there and {said[1].get(key, UNSET)} here" for key in differing_keys(tables)
    ]


def differing_keys(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all of the flat tables; a missing one counts as None.

    >>> differing_keys([{"lr": 0.1, "seed": 0}, {"lr": 0.1, "seed": 1}, {"lr": 0.1, "seed": 0, "steps": 3}])
    ['seed', 'steps']
    """
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if any(table.get(key) != tables[0].get(key) for table in tables)]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, with dotted names.

    >>> flat({"method": {"name": "fedamp", "sigma": 1}, "seed": 0})
    {'method.name': 'fedamp', 'method.sigma': 1, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
