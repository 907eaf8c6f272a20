"""The commands that run a run or a comparison again, from descriptions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedamp.report.groups import ORDER

DEFAULTS: dict[str, Any] = {
    "momentum": 0.0,
    "weight_decay": 0.0,
    "task": "auto",
    "held_out": 0.2,
    "label_noise": 0.0,
    "poison_scale": 10.0,
    "replies": "auto",
    "init": "common",
    "absent": 0.0,
    "validation": 0.0,
    "engine": "auto",
    "device": "auto",
    "deterministic": False,
}
"""Settings that go without saying, so that a command stays short. A copy; a test keeps it true."""


def run_command(config: Mapping[str, Any]) -> str | None:
    """Return the `fedamp run` that a description stands for, or None where no such command has these clients."""
    return None if _not_simulated(config) else shlex.join(["fedamp", "run", *_flags(config)])


def _not_simulated(config: Mapping[str, Any]) -> bool:
    """Whether clients were given as Python objects, or were silos in houses of their own."""
    return config.get("data") == "given" or config.get("setting") == {"name": "federation"}


def compare_command(descriptions: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the `fedamp compare` that stands for all of these, or None where no single one does.

    It gives every method the same settings and seeds, and takes Separate in.
    """
    seeds: dict[str, list[int]] = {}
    for told in descriptions:
        seeds.setdefault(told["method"]["name"], []).append(told["seed"])
    first = descriptions[0]
    rest = [{key: value for key, value in told.items() if key not in ("method", "seed")} for told in descriptions]
    span = sorted(seeds[first["method"]["name"]])
    if (
        len(descriptions) < 2
        or _not_simulated(first)
        or set(seeds) - set(ORDER)
        or "separate" not in seeds
        or any(len(told["method"]) > 1 for told in descriptions)  # parameters are a method's own
        or any(other != rest[0] for other in rest)
        or any(sorted(each) != span for each in seeds.values())
        or span != list(range(span[0], span[0] + len(span)))
    ):
        return None
    methods = "all" if set(seeds) == set(ORDER) else ",".join(seeds)
    flags = ["--methods", methods, "--seeds", str(len(span)), *_flags({**rest[0], "seed": span[0]})]
    return shlex.join(["fedamp", "compare", *flags])


def _flags(config: Mapping[str, Any]) -> list[str]:
    # A folder of silos decides itself who the clients are.
    silent = {"setting", "clients"} if _name(config.get("setting")) == "natural" else set()
    # What was found, not what was asked for.
    silent |= {"version", "model_code"}
    flags: list[str] = []
    details: list[tuple[str, Any]] = []
    for key, value in config.items():
        if value is None or value == [] or key in silent or DEFAULTS.get(key) == value:
            continue
        if isinstance(value, Mapping):
            details += [(f"{key}.{name}", each) for name, each in value.items() if name != "name" and each is not None]
            value = value["name"]
        flags.append(f"--{key.replace('_', '-')}")
        if value is not True:
            flags.append(",".join(map(str, value)) if isinstance(value, list) else str(value))
    for name, each in details:
        flags += ["--set", f"{name}={toml(each)}"]
    return flags


def toml(value: Any) -> str:
    """Return a value as TOML writes it, which is how `--set` reads it.

    >>> toml({"a": [1, 2.5], "b": True})
    '{"a" = [1, 2.5], "b" = true}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str) and value.replace("-", "").replace("_", "").isalpha() and value not in _WORDS:
        return value  # a plain word needs no quotes, neither TOML's nor the shell's
    return json.dumps(value)


_WORDS = ("true", "false", "inf", "nan")


def _name(value: Any) -> Any:
    return value.get("name") if isinstance(value, Mapping) else value
