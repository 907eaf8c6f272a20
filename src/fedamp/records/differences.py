"""What differs between two configurations, in words: the one place that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return in words what differs between two descriptions, as `to_dict` gives them."""
    flat_a, flat_b = flat(a), flat(b)
    keys = [key for key in {**flat_a, **flat_b} if flat_a.get(key) != flat_b.get(key)]
    return [f"{key} is {flat_a.get(key)!r} there and {flat_b.get(key)!r} here" for key in keys]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, with dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
