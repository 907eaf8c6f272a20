"""All methods with the same effort: the runs behind the comparison in docs/methods.md.

In each setting every method gets three trials on validation samples, then it runs with three seeds and the value that
validation chose. Twins, which differ in the model they are scored at, share their runs; each chooses for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedamp.config import Named
from fedamp.config.presets import preset
from fedamp.methods import METHODS
from fedamp.methods.base import GROUPS
from fedamp.runs.compare import twins
from paper import results
from paper.experiments import CHOICE_SEED, SEEDS, Cell

Value = float | int | str
Trials = tuple[str, tuple[Value, ...]]
"""A knob, and the three values of it that are tried."""

LR = "lr"
RATES: Trials = (LR, (3e-4, 1e-3, 3e-3))
SGD_RATES: Trials = (LR, (0.03, 0.1, 0.3))

KNOBS: dict[str, Trials] = {
    "fedprox": ("mu", (1e-3, 1e-2, 1e-1)),
    "per-fedavg": ("alpha", (1e-3, 3e-3, 1e-2)),
    "ditto": ("lam", (0.01, 0.1, 1.0)),
    "mr-mtl": ("lam", (1e-3, 1e-2, 1e-1)),
    "fedper": ("head", (1, 2, 3)),
    "fedrep": ("head_epochs", (1, 2, 4)),
    "fedala": ("layers", (1, 2, 3)),
    "fedamp": ("sigma", (1.0, 10.0, 100.0)),
    "heurfedamp": ("sigma", (1.0, 10.0, 100.0)),
    "pfedgraph": ("alpha", (0.8, 2.5, 8.0)),
    "fedfomo": ("models", (3, 5, 10)),
    "ifca": ("clusters", (2, 3, 5)),
    "cfl": ("eps1", (0.5, 0.7, 0.9)),
}
"""The knob of each method that has one of its own; the rest tune their learning rate, as do those that need SGD."""

OF_MODEL: dict[str, dict[str, Trials]] = {
    "mlp": {
        # Between the digits' models squared distances are about 1.5, in runs with CHOICE_SEED.
        "fedamp": ("sigma", (0.1, 1.0, 10.0)),
        # It has two layers: a head of both would be all of the model.
        "fedper": RATES,
        "fedala": ("eta", (0.1, 1.0, 10.0)),
    }
}
"""What is tried instead where a model asks for other values."""

VALIDATION = 0.2


@dataclass(frozen=True)
class Setting:
    """Where methods are compared."""

    title: str
    values: Mapping[str, Any]  # of a RunConfig, all but method and seed
    methods: tuple[str, ...] | None = None  # None: all but those that need a normalisation
    trials: bool = True

    @property
    def model(self) -> str:
        """The name of its model."""
        return Named.of(self.values["model"]).name


def _images(data: str, setting: str, **changes: Any) -> dict[str, Any]:
    """Return one of the paper's settings, with 15 rounds of 5 epochs."""
    values = preset(f"paper/{data}-{setting}", "separate")
    del values["method"]
    return {**values, "setting": {**values["setting"], **changes}, "rounds": 15, "epochs": 5}


_DIGITS = {"data": "digits", "setting": "practical", "clients": 20, "model": "mlp", "rounds": 30}
_NORM = {"model": {"name": "cnn-small", "norm": True}, "rounds": 20}
PLACES: dict[str, Setting] = {
    "peers-digits": Setting("digits, practical, perceptron", _DIGITS),
    "peers-norm": Setting(
        "digits, practical, convolutions with BatchNorm",
        {**_DIGITS, **_NORM},
        ("separate", "fedavg", "fedavg-ft", "fedper", "fedrep", "fedbn", "autoamp"),
    ),
    "peers-fmnist-practical": Setting("FMNIST, practical", _images("fmnist", "practical")),
    "peers-fmnist-pathological": Setting("FMNIST, pathological", _images("fmnist", "pathological")),
    "peers-fmnist-iid": Setting("FMNIST, IID", _images("fmnist", "iid", samples=200)),
    # The paper's sizes, all by the same factor: the least with which each client of the smallest group has a sample of
    # each class.
    "peers-emnist-practical": Setting("EMNIST, practical", _images("emnist", "practical", sizes=[450, 315, 180])),
    "peers-time": Setting("time", {**_images("fmnist", "practical"), "rounds": 6}, trials=False),
}
NAMES = list(PLACES)
TIME = "peers-time"
NEED_NORM = ("fedbn",)


def compared(name: str) -> list[str]:
    """Return the methods of a table, group by group; those that are not there yet are left out."""
    wanted = PLACES[name].methods or [method for method in METHODS if method not in NEED_NORM]
    known = [method for method in wanted if method in METHODS]
    return [method for group in GROUPS for method in known if METHODS[method].group == group]


def trained_as(method: str) -> str:
    """Return the method whose runs serve this one: its twin's, if it has one."""
    return twins.trained_as(method) or method


def trials_of(name: str, method: str) -> Trials:
    """Return what is tried for a method in a setting."""
    run = trained_as(method)
    kind = METHODS[run]
    if kind.plain_sgd_only or (run not in KNOBS and kind.optimizer == "sgd"):
        return SGD_RATES
    return OF_MODEL.get(PLACES[name].model, {}).get(run) or KNOBS.get(run, RATES)


def chosen(name: str, method: str) -> Value | None:
    """Return the value that validation chose, at the model that the method is scored at; None until all are tried.

    Of values that are equally good, the first.
    """
    scores = {}
    for value in trials_of(name, method)[1]:
        result = results.read(name, trial_label(name, method, value))
        if result is None:
            return None
        scores[value] = result["validation"][METHODS[method].scored]
    return max(scores, key=lambda value: scores[value])


def label_of(name: str, method: str, value: Value) -> str:
    """Return the name of a method's runs with one value of its knob, without the seed."""
    return f"{trained_as(method)}-{trials_of(name, method)[0]}-{value if isinstance(value, str) else f'{value:g}'}"


def trial_label(name: str, method: str, value: Value) -> str:
    """Return the name of the run in which a value is tried."""
    return f"tune-{label_of(name, method, value)}"


def table(name: str) -> list[Cell]:
    """Return the cells of a table: each method's trials, then its first seed; the other seeds come after all methods.

    So a table that is not finished has all methods, with fewer seeds. What waits for trials is not there yet.
    """
    methods = list(dict.fromkeys(trained_as(method) for method in compared(name)))
    if not PLACES[name].trials:
        return [Cell(name, method, values_of(name, method, SEEDS[0]), keeps_weights=False) for method in methods]
    cells = [cell for method in methods for cell in (*_trials(name, method), *_runs(name, method, SEEDS[0]))]
    return cells + [cell for seed in SEEDS[1:] for method in methods for cell in _runs(name, method, seed)]


def _trials(name: str, method: str) -> Iterator[Cell]:
    knob, tried = trials_of(name, method)
    for value in tried:
        values = values_of(name, method, CHOICE_SEED, {knob: value}, trial=True)
        yield Cell(name, trial_label(name, method, value), values, keeps_weights=False)


def _runs(name: str, method: str, seed: int) -> Iterator[Cell]:
    """Return the runs of a method and of its twins with what each of them chose."""
    sharing = [each for each in compared(name) if trained_as(each) == method]
    found = dict.fromkeys(value for each in sharing if (value := chosen(name, each)) is not None)
    for value in found:
        values = values_of(name, method, seed, {trials_of(name, method)[0]: value})
        yield Cell(name, f"{label_of(name, method, value)}-seed{seed}", values, keeps_weights=False)


def values_of(
    name: str, method: str, seed: int, knob: Mapping[str, Value] | None = None, trial: bool = False
) -> dict[str, Any]:
    """Return the configuration of a run; a trial has half the rounds and holds out validation samples."""
    values = dict(PLACES[name].values)
    rounds = values["rounds"] // 2 if trial else values["rounds"]
    own = dict(knob or {})
    rate = {LR: own.pop(LR)} if LR in own else {}
    if method in ("fedamp", "heurfedamp"):
        # In these few rounds alpha falls as far as in the paper's 90; the oracle knows what no deployment does.
        own = {"alpha_every": max(1, round(rounds / 3)), "self_weight": "uniform", **own}
    held_out = {"validation": VALIDATION} if trial else {}
    return {**values, **rate, **held_out, "rounds": rounds, "method": Named(method, own), "seed": seed}
