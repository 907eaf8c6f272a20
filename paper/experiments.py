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
from paper import results, sizes
from paper.plans import GRIDS, JUDGED, SEEDS, VARIANT_ROUNDS, plan_of, shortened
from paper.published import DATA, SETTING

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
    "flipped": {"poisoned": (0, 10, 20, 30, 40), "attack": "labels", "replies": "any"},
}
"""What goes wrong in the robustness table. The last two: one client in ten attacks, one of each group, and replies are
not checked, since the question is what the methods themselves make of them."""


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


def table(name: str, awaited: bool = False) -> list[Cell]:
    """Return the cells of a table, in the order in which they are worth running.

    Those that wait for a size or for tuning are left out; if they are `awaited`, they are there too, with a value that
    stands for the one to come and a label that says so.
    """
    kind, _, data = name.partition("-")
    if name not in NAMES:
        raise UserError(f"table is {name!r}; expected one of {', '.join(NAMES)}")
    return list(_MAKERS[kind](name, data, awaited))


TUNING = {"table1": "tune1", "table2": "tune2", "table3": "tune"}
"""Where a table's knobs are tuned: each in its own setting."""

NAMES = [
    *(f"tune-{data}" for data in ("emnist", "fmnist", "mnist")),
    *(f"table3-{data}" for data in ("emnist", "fmnist", "mnist")),
    *(f"ablation-{data}" for data in ("emnist", "fmnist")),
    *(f"auto-{data}" for data in ("emnist", "fmnist", "mnist")),
    *(f"{part}-{data}" for kind in ("table2", "table1") for data in DATA[:3] for part in (TUNING[kind], kind)),
    "robust-fmnist",
    *(f"sizes-{data}" for data in sizes.SIZED),
    *(f"{part}-cifar100" for kind in ("table3", "table2", "table1") for part in (TUNING[kind], kind)),
    "auto-cifar100",
]


def _sizes(name: str, data: str, _: bool) -> Iterator[Cell]:
    for setting in SETTING.values():
        for size in sizes.TRIED[setting]:
            which = f"paper/{data}-{setting}"
            changes = {**sizes.TRIAL, "setting": sizes.with_size(preset(which, "separate")["setting"], size)}
            values = _values(which, "separate", sizes.TRIAL_SEED, changes, {})
            yield Cell(name, sizes.trial_label(setting, size), values)


def _has_size(data: str, setting: str, awaited: bool) -> bool:
    return awaited or data not in sizes.SIZED or sizes.chosen(data, setting) is not None


def _tuning(name: str, data: str, awaited: bool) -> Iterator[Cell]:
    kind = next(kind for kind, where in TUNING.items() if where == name.partition("-")[0])
    plan = plan_of(data)
    for method, (knob, values) in plan.grids.items() if _has_size(data, SETTING[kind], awaited) else ():
        for value in values:
            brief = {**shortened(plan.tuning_rounds, method), "validation": 0.2}
            chosen = _values(f"paper/{data}-{SETTING[kind]}", method, 0, brief, {knob: value})
            yield Cell(name, label_of(method, value), chosen)


def _table(name: str, data: str, awaited: bool) -> Iterator[Cell]:
    """Return every method with the first seed, then the quick ones with the other seeds: the table fills up early."""
    kind, plan = name.partition("-")[0], plan_of(data)
    for seed in plan.seeds if _has_size(data, SETTING[kind], awaited) else ():
        for method in (*TRAINED, *SLOW) if seed == plan.seeds[0] else TRAINED:
            for label, chosen in _points(kind, data, method, awaited):
                values = _values(f"paper/{data}-{SETTING[kind]}", method, seed, plan.whole(method), chosen)
                yield Cell(name, f"{label}-seed{seed}", values, plan.patience_of(method))
        if kind == "table3" and plan.has_local:
            values = _values(f"paper/{data}-practical", "fedamp", seed, {}, LOCAL)
            yield Cell(name, f"fedamp-local-seed{seed}", values, plan.patience_of("fedamp"))


def _points(kind: str, data: str, method: str, awaited: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return which values of its knob a method is run with, under which label; none while the tuning is not done."""
    grids = plan_of(data).grids
    if method not in grids:
        return [(method, {})]
    knob, values = grids[method]
    found = [tuned(data, method, entry, kind) for entry in JUDGED.get(method, ("own",))]
    if None in found and awaited:  # one run, perhaps two: each of the two models chooses
        return [(f"{method}-{knob}-{TO_COME}", {knob: values[0]})]
    return list({label_of(method, value): {knob: value} for value in found if value is not None}.items())


TO_COME = "to-come"
"""What stands in a label for a value that is not chosen yet."""


def label_of(method: str, value: float) -> str:
    """Return the name of a method with one value of its knob."""
    return f"{method}-{GRIDS[method][0]}-{value:g}"


def _ablation(name: str, data: str, _: bool) -> Iterator[Cell]:
    value = tuned(data, "fedamp", "received")
    for seed in SEEDS if value is not None else ():
        for variant, changes in VARIANTS.items():
            method = {"sigma": value, **changes.get("method", {})}
            brief = {**changes, **shortened(VARIANT_ROUNDS, "fedamp")}
            yield Cell(name, f"{variant}-seed{seed}", _values(f"paper/{data}-practical", "fedamp", seed, brief, method))


def _robust(name: str, data: str, _: bool) -> Iterator[Cell]:
    for seed in SEEDS:
        for trouble, changes in TROUBLES.items():
            for method in (*TRAINED, "autoamp"):
                chosen = {"sigma": tuned(data, method, "received")} if method in GRIDS else {}
                if None not in chosen.values():
                    brief = {**changes, **shortened(VARIANT_ROUNDS, method)}
                    values = _values(f"paper/{data}-practical", method, seed, brief, chosen)
                    yield Cell(name, f"{trouble}-{method}-seed{seed}", values)


def _auto(name: str, data: str, awaited: bool) -> Iterator[Cell]:
    """Return AutoAMP in all three settings, as it is: there is nothing to tune."""
    plan = plan_of(data)
    for seed in (*plan.seeds, CHOICE_SEED):
        for setting in SETTING.values():
            if _has_size(data, setting, awaited):
                held_out = {"validation": 0.2} if seed == CHOICE_SEED else {}
                brief = {"rounds": plan.auto_rounds, **held_out}
                yield Cell(
                    name, f"{setting}-seed{seed}", _values(f"paper/{data}-{setting}", "autoamp", seed, brief, {})
                )


_MAKERS = {
    "sizes": _sizes,
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
    for value in plan_of(data).grids[method][1]:
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
    data, setting = values["data"], values["setting"]["name"]
    if data in sizes.SIZED and (size := sizes.chosen(data, setting)) is not None:
        values["setting"] = sizes.with_size(values["setting"], size)
    choice = Named.of(values["method"])
    own = {**choice.parameters, **changes.get("method", {}), **of_method}
    if own.get("form") == "gradient":
        own.pop("self_weight", None)  # Eq. 5 has its own
    rest = {key: value for key, value in changes.items() if key != "method"}
    return {**values, **rest, "method": Named(choice.name, own), "seed": seed}
