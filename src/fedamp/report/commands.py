"""The commands that repeat a run or a comparison, from their configurations."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedamp.config.run_config import RunConfig
from fedamp.report.groups import NUM_USUAL, ORDER

ALWAYS_SAID = ("data", "setting", "clients", "model", "method", "rounds", "epochs", "steps", "batch_size", "seed")
"""What a command names even at its default. Everything else is left out there, so that commands stay short."""

TOML_VALUES = ("true", "false", "inf", "nan")
"""Words that TOML reads as values, not as text."""

FOUND = ("version", "model_code")
"""What a run found out by itself and has no flag for."""


def run_command(config: Mapping[str, Any]) -> str | None:
    """Return the `fedamp run` command of a configuration, or None if no command can provide its clients."""
    return None if _not_simulated(config) else shlex.join(["fedamp", "run", *_flags(config)])


def _not_simulated(config: Mapping[str, Any]) -> bool:
    """Whether the clients were Python objects, the silos of a federation over real machines, or a newcomer."""
    return config.get("data") == "given" or _name(config.get("setting")) in ("federation", "newcomer")


def compare_command(configs: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the `fedamp compare` command that makes all of these runs, or None if no single one does.

    A comparison gives every method the same settings and seeds, and always includes Separate.
    """
    seeds: dict[str, list[int]] = {}
    for config in configs:
        seeds.setdefault(config["method"]["name"], []).append(config["seed"])
    first = configs[0]
    rest = [{key: value for key, value in config.items() if key not in ("method", "seed")} for config in configs]
    span = sorted(seeds[first["method"]["name"]])
    if (
        len(configs) < 2
        or _not_simulated(first)
        or set(seeds) - set(ORDER)
        or "separate" not in seeds
        or any(len(config["method"]) > 1 for config in configs)  # hyperparameters belong to one method
        or any(other != rest[0] for other in rest)
        or any(sorted(each) != span for each in seeds.values())
        or span != list(range(span[0], span[0] + len(span)))
    ):
        return None
    words = {frozenset(ORDER[:NUM_USUAL]): "usual", frozenset(ORDER): "all"}
    methods = words.get(frozenset(seeds), ",".join(seeds))
    flags = ["--methods", methods, "--seeds", str(len(span)), *_flags({**rest[0], "seed": span[0]})]
    return shlex.join(["fedamp", "compare", *flags])


def _flags(config: Mapping[str, Any]) -> list[str]:
    defaults = RunConfig().to_dict()
    # A folder of silos itself decides who the clients are.
    silent = {*FOUND, *(("setting", "clients") if _name(config.get("setting")) == "natural" else ())}
    flags: list[str] = []
    details: list[tuple[str, Any]] = []
    for key, value in config.items():
        usual = key not in ALWAYS_SAID and key in defaults and value == defaults[key]
        if value is None or value == [] or key in silent or usual:
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
    if isinstance(value, str) and value.replace("-", "").replace("_", "").isalpha() and value not in TOML_VALUES:
        return value  # a plain word needs no quotes, neither TOML's nor the shell's
    return json.dumps(value)


def _name(value: Any) -> Any:
    return value.get("name") if isinstance(value, Mapping) else value
