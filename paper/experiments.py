"""The paper's tables as lists of runs: each cell is a configuration. docs/reproduction.md says which choices are ours.

A cell of FedAvg or FedProx serves its fine-tuned form too: one trajectory, scored at two models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedamp.config import Named, RunConfig
from fedamp.config.presets import preset
from fedamp.errors import UserError
from paper import results

SEEDS = (0, 1, 2)
PATIENCE = {"scaffold": 40, "apfl": 40, "separate": 20, "others": 30}
"""Rounds without a better mean after which a run ends: the first two have 600, and nobody who trains alone learns
for 90."""

GRIDS: dict[str, tuple[str, tuple[float, ...]]] = {
    "fedamp": ("sigma", (1.0, 10.0, 100.0, 1000.0)),
    "heurfedamp": ("sigma", (1.0, 10.0, 100.0, 1000.0)),
    "apfl": ("mixture", (0.1, 0.3, 0.5, 0.9)),
}
"""What the paper tuned and did not print: four values each, chosen on a fifth of the training samples, never on
test samples."""

JUDGED = dict.fromkeys(("fedamp", "heurfedamp"), ("own", "received"))
"""Both w and u are FedAMP's output (Algorithm 1), and what is best for one is not best for the other: each is tuned."""

TRAINED = ("separate", "fedavg", "fedprox", "fedamp", "heurfedamp")
SLOW = ("scaffold", "apfl")

LOCAL = {"sigma": "local", "sharpness": 4.0, "self_weight": "uniform"}
"""FedAMP with a scale for each client, without knowing who is alike. The sharpness is what was best for u on the
digits, so it was chosen on none of these data."""

WATCHED = {**JUDGED, **dict.fromkeys(("fedavg", "fedprox"), ("own", "received"))}
"""The models of a run that are in a table: a run ends early only when none of them gets better."""

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "uniform": {"method": {"sigma": float("inf")}},
    "equal": {"method": {"sigma": float("inf"), "self_weight": "uniform"}},
    "no-oracle": {"method": {"self_weight": "uniform"}},
    "start-w": {"method": {"start": "w"}},
    "gradient": {"method": {"form": "gradient", "sigma": "median", "self_weight": "uniform"}},
    "own-init": {"init": "own"},
    "local": {"method": LOCAL},
}
"""FedAMP with one thing changed. `uniform` has no attention left: the self weight, and everyone else the same."""

TROUBLES: dict[str, dict[str, Any]] = {
    "clean": {},
    "noise20": {"label_noise": 0.2},
    "noise40": {"label_noise": 0.4},
    "absent20": {"absent": 0.2},
    "absent50": {"absent": 0.5},
    "poisoned": {"poisoned": (0, 10, 20, 30, 40), "replies": "any"},
}
"""What goes wrong in the robustness table. The last: one client in ten is poisoned, one of each group, and replies are
not checked, since the question is what the methods themselves make of them."""


def shortened(rounds: int, method: str) -> dict[str, Any]:
    """Return the changes for a run of fewer rounds than 90, in which alpha falls as much as in a whole one."""
    falls = {"method": {"alpha_every": rounds // 3}} if method in JUDGED else {}
    return {"rounds": rounds, **falls}


TUNING_ROUNDS = VARIANT_ROUNDS = 18
AUTO_ROUNDS = 40
CHOICE_SEED = 100
"""Which of AutoAMP's two models counts is chosen on a fifth of the training samples of a run with this seed, which no
table has."""


@dataclass(frozen=True)
class Cell:
    """One run of a table."""

    table: str
    label: str
    values: Mapping[str, Any] = field(repr=False)  # of its RunConfig
    patience: int | None = None
    keeps_weights: bool = True  # whether a result has weights for a figure

    @property
    def path(self) -> Path:
        """Where its result is kept."""
        return results.path_of(self.table, self.label)

    @property
    def config(self) -> RunConfig:
        """What is run."""
        return RunConfig.of(self.values)


def table(name: str) -> list[Cell]:
    """Return the cells of a table, in the order in which they are worth running."""
    kind, _, data = name.partition("-")
    if name not in NAMES:
        raise UserError(f"table is {name!r}; expected one of {', '.join(NAMES)}")
    return list(_MAKERS[kind](name, data))


SETTING = {"table1": "iid", "table2": "pathological", "table3": "practical"}
TUNING = {"table1": "tune1", "table2": "tune2", "table3": "tune"}
"""Where a table's knobs are tuned: each in its own setting."""

FAMILY = ("mnist", "fmnist", "emnist")
NAMES = [
    *(f"tune-{data}" for data in ("emnist", "fmnist", "mnist")),
    *(f"table3-{data}" for data in ("emnist", "fmnist", "mnist", "cifar100")),
    *(f"ablation-{data}" for data in ("emnist", "fmnist")),
    *(f"auto-{data}" for data in ("emnist", "fmnist", "mnist", "cifar100")),
    *(f"{part}-{data}" for kind in ("table2", "table1") for data in FAMILY for part in (TUNING[kind], kind)),
    "robust-fmnist",
]


def _tuning(name: str, data: str) -> Iterator[Cell]:
    kind = next(kind for kind, where in TUNING.items() if where == name.partition("-")[0])
    for method, (knob, values) in GRIDS.items():
        for value in values:
            brief = {**shortened(TUNING_ROUNDS, method), "validation": 0.2}
            chosen = _values(f"paper/{data}-{SETTING[kind]}", method, 0, brief, {knob: value})
            yield Cell(name, label_of(method, value), chosen)


def _table(name: str, data: str) -> Iterator[Cell]:
    """Return every method with the first seed, then the quick ones with the other seeds: the table fills up early."""
    kind = name.partition("-")[0]
    for seed in SEEDS if data != "cifar100" else SEEDS[:1]:
        for method in (*TRAINED, *SLOW) if seed == SEEDS[0] else TRAINED:
            for label, chosen in _points(kind, data, method):
                values = _values(f"paper/{data}-{SETTING[kind]}", method, seed, {}, chosen)
                yield Cell(name, f"{label}-seed{seed}", values, PATIENCE.get(method, PATIENCE["others"]))
        if kind == "table3":
            values = _values(f"paper/{data}-practical", "fedamp", seed, {}, LOCAL)
            yield Cell(name, f"fedamp-local-seed{seed}", values, PATIENCE["others"])


def _points(kind: str, data: str, method: str) -> list[tuple[str, dict[str, Any]]]:
    """Return which values of its knob a method is run with, under which label; none while the tuning is not done."""
    if method not in GRIDS or data == "cifar100":
        return [(method, {})]
    found = (tuned(data, method, entry, kind) for entry in JUDGED.get(method, ("own",)))
    return list({label_of(method, value): {GRIDS[method][0]: value} for value in found if value is not None}.items())


def label_of(method: str, value: float) -> str:
    """Return the name of a method with one value of its knob."""
    return f"{method}-{GRIDS[method][0]}-{value:g}"


def _ablation(name: str, data: str) -> Iterator[Cell]:
    value = tuned(data, "fedamp", "received")
    for seed in SEEDS if value is not None else ():
        for variant, changes in VARIANTS.items():
            method = {"sigma": value, **changes.get("method", {})}
            brief = {**changes, **shortened(VARIANT_ROUNDS, "fedamp")}
            yield Cell(name, f"{variant}-seed{seed}", _values(f"paper/{data}-practical", "fedamp", seed, brief, method))


def _robust(name: str, data: str) -> Iterator[Cell]:
    for seed in SEEDS:
        for trouble, changes in TROUBLES.items():
            for method in TRAINED:
                chosen = {"sigma": tuned(data, method, "received")} if method in GRIDS else {}
                if None not in chosen.values():
                    brief = {**changes, **shortened(VARIANT_ROUNDS, method)}
                    values = _values(f"paper/{data}-practical", method, seed, brief, chosen)
                    yield Cell(name, f"{trouble}-{method}-seed{seed}", values)


def _auto(name: str, data: str) -> Iterator[Cell]:
    """Return AutoAMP in all three settings (CIFAR100: the practical one), as it is: there is nothing to tune."""
    settings = SETTING.values() if data != "cifar100" else ("practical",)
    for seed in (*(SEEDS if data != "cifar100" else SEEDS[:1]), CHOICE_SEED):
        for setting in settings:
            held_out = {"validation": 0.2} if seed == CHOICE_SEED else {}
            values = _values(f"paper/{data}-{setting}", "autoamp", seed, {"rounds": AUTO_ROUNDS, **held_out}, {})
            yield Cell(name, f"{setting}-seed{seed}", values)


_MAKERS = {
    **dict.fromkeys(TUNING.values(), _tuning),
    **dict.fromkeys(("table1", "table2", "table3"), _table),
    "ablation": _ablation,
    "robust": _robust,
    "auto": _auto,
}


def tuned(data: str, method: str, entry: str, kind: str = "table3") -> float | None:
    """Return the value of a method's knob that validation chose for one of its models; None until all are tried.

    Of two that are equally good for this model, the one that is better for the other.
    """
    scores = {}
    for value in GRIDS[method][1]:
        result = results.read(f"{TUNING[kind]}-{data}", label_of(method, value))
        if result is None:
            return None
        validation = result["validation"]
        scores[value] = validation[entry], validation["own"] + validation["received"]
    return max(scores, key=lambda value: scores[value])


def _values(
    which: str, method: str, seed: int, changes: Mapping[str, Any], of_method: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a preset with changes to the run and to its method; `of_method` comes last."""
    values = preset(which, method)
    choice = Named.of(values["method"])
    own = {**choice.parameters, **changes.get("method", {}), **of_method}
    if own.get("form") == "gradient":
        own.pop("self_weight", None)  # Eq. 5 has its own
    rest = {key: value for key, value in changes.items() if key != "method"}
    return {**values, **rest, "method": Named(choice.name, own), "seed": seed}
