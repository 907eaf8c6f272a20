"""The paper's tables as lists of runs: each cell is a description and a seed. docs/reproduction.md says what is ours.

A cell of FedAvg or FedProx holds its fine-tuned form too: one trajectory, scored at two models.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedamp.description import Description, Named
from fedamp.presets import preset

RESULTS = Path(__file__).parent.parent / "results"

SEEDS = (0, 1, 2)
PATIENCE = 40
"""SCAFFOLD and APFL have up to 600 rounds, and end where this many brought no better mean."""

GRIDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "fedamp": ("sigma", (10.0, 30.0, 100.0, 1000.0)),
    "heurfedamp": ("sigma", (1.0, 10.0, 30.0, 100.0)),
    "apfl": ("mixture", (0.1, 0.3, 0.5, 0.9)),
}
"""What the paper tuned and did not print: four values each, chosen by a fifth of the training samples, not by test."""
TUNING = {"rounds": 30, "validation": 0.2}

TRAINED = ("separate", "fedavg", "fedprox", "fedamp", "heurfedamp")
SLOW = ("scaffold", "apfl")

VARIANTS: dict[str, dict[str, Any]] = {
    "uniform": {"method": {"sigma": float("inf")}},
    "equal": {"method": {"sigma": float("inf"), "self_weight": "uniform"}},
    "no-oracle": {"method": {"self_weight": "uniform"}},
    "sharp": {"method": {"sigma": 1.0}},
    "start-w": {"method": {"start": "w"}},
    "gradient": {"method": {"form": "gradient", "sigma": "median", "self_weight": "uniform"}},
    "own-init": {"init": "own"},
}
"""FedAMP with one thing changed. `uniform` has no attention left: the self weight, and everyone else the same."""


@dataclass(frozen=True)
class Cell:
    """One run of a table."""

    table: str
    label: str
    values: Mapping[str, Any] = field(repr=False)  # of its Description
    patience: int | None = None

    @property
    def path(self) -> Path:
        """Where its result is kept."""
        return RESULTS / self.table / f"{self.label}.json"

    @property
    def description(self) -> Description:
        """What is run."""
        return Description.of(self.values)


def table(name: str) -> list[Cell]:
    """Return the cells of a table, in the order in which they are worth running."""
    kind, _, of = name.partition("-")
    makers = {"tune": _tuning, "table1": _table, "table2": _table, "table3": _table, "ablation": _ablation}
    if kind not in makers or of not in ("mnist", "fmnist", "emnist", "cifar100"):
        raise ValueError(f"table is {name!r}; expected one of {', '.join(NAMES)}")
    return list(makers[kind](name, of))


SETTING = {"table1": "iid", "table2": "pathological", "table3": "practical", "tune": "practical"}
NAMES = [
    *(f"tune-{data}" for data in ("emnist", "fmnist", "mnist")),
    *(f"table3-{data}" for data in ("emnist", "fmnist", "mnist", "cifar100")),
    *(f"ablation-{data}" for data in ("emnist", "fmnist")),
    *(f"{kind}-{data}" for kind in ("table1", "table2") for data in ("mnist", "fmnist", "emnist")),
]


def _tuning(name: str, data: str) -> Iterator[Cell]:
    for method, (knob, values) in GRIDS.items():
        for value in values:
            told = _values(f"paper/{data}-practical", method, 0, {"method": {knob: value}, **TUNING})
            yield Cell(name, f"{method}-{knob}-{value:g}", told)


def _table(name: str, data: str) -> Iterator[Cell]:
    kind = name.partition("-")[0]
    which = f"paper/{data}-{SETTING[kind]}"
    seeds = SEEDS if kind == "table3" and data != "cifar100" else SEEDS[:1]
    for method in TRAINED:
        for seed in seeds:
            yield Cell(name, f"{method}-seed{seed}", _values(which, method, seed, _tuned(kind, data, method)))
    for method in SLOW:
        yield Cell(name, f"{method}-seed0", _values(which, method, 0, _tuned(kind, data, method)), PATIENCE)


def _ablation(name: str, data: str) -> Iterator[Cell]:
    for variant, changes in VARIANTS.items():
        tuned = _tuned("table3", data, "fedamp")
        merged = {**tuned, **changes, "method": {**tuned.get("method", {}), **changes.get("method", {})}}
        for seed in SEEDS:
            yield Cell(name, f"{variant}-seed{seed}", _values(f"paper/{data}-practical", "fedamp", seed, merged))


def _tuned(kind: str, data: str, method: str) -> dict[str, Any]:
    """Return what validation chose in the practical setting; nothing where it was not tuned."""
    if method not in GRIDS or kind != "table3":
        return {}
    knob, values = GRIDS[method]
    scores = {}
    for value in values:
        path = RESULTS / f"tune-{data}" / f"{method}-{knob}-{value:g}.json"
        if path.exists():
            scores[value] = json.loads(path.read_text())["validation"]["own"]
    if len(scores) < len(values):
        return {}
    return {"method": {knob: max(scores, key=lambda value: scores[value])}}


def _values(which: str, method: str, seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    told = preset(which, method)
    choice = Named.of(told["method"])
    own = {**choice.parameters, **changes.get("method", {})}
    if own.get("form") == "gradient":
        own.pop("self_weight", None)  # Eq. 5 has its own
    rest = {key: value for key, value in changes.items() if key != "method"}
    return {**told, **rest, "method": Named(choice.name, own), "seed": seed}
