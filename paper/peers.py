"""All methods with the same effort: the runs behind the comparison in docs/methods.md.

In each setting every method gets five trials on validation samples: three learning rates, and then, at the best of
them, two more values of its own knob; a method without one gets two more rates around the best. Then it runs with three
seeds and what validation chose. Twins, which differ in the model they are scored at, share their runs as far as they
agree; each chooses for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from fedamp.config import Named
from fedamp.config.presets import preset
from fedamp.methods import METHODS
from fedamp.methods.base import GROUPS
from fedamp.runs.compare import twins
from paper import results
from paper.experiments import CHOICE_SEED, SEEDS, Cell

Value = float | int | str
Knob = tuple[str, tuple[Value, Value]]
"""A parameter of a method, and the two values of it that are tried besides its default."""

RATES = {"adam": (3e-4, 1e-3, 3e-3), "sgd": (0.03, 0.1, 0.3)}
"""The learning rates that are tried first, by the optimiser that a method has."""

AROUND = (0.55, 1.8)
"""By these a method without a knob multiplies its best rate, to try two more."""

KNOBS: dict[str, Knob] = {
    "fedprox": ("mu", (1e-3, 1e-1)),
    "per-fedavg": ("alpha", (3e-3, 3e-2)),
    "apfl": ("mixture", (0.1, 0.9)),
    "ditto": ("lam", (0.1, 1.0)),
    "mr-mtl": ("lam", (1e-3, 1e-1)),
    "pfedme": ("lam", (2.0, 15.0)),
    "fedper": ("head", (2, 3)),
    "fedrep": ("head_epochs", (1, 4)),
    "fedala": ("layers", (2, 3)),
    "fedamp": ("sigma", (1.0, 10.0)),
    "heurfedamp": ("sigma", (10.0, 100.0)),
    "pfedgraph": ("alpha", (2.5, 8.0)),
    "fedfomo": ("models", (3, 10)),
    "ifca": ("clusters", (3, 5)),
    "cfl": ("eps1", (0.5, 0.9)),
}
"""The knob of each method that has one of its own."""

OF_MODEL: dict[str, dict[str, Knob | None]] = {
    "mlp": {
        # Between the digits' models squared distances are about 1.5, in runs with CHOICE_SEED.
        "fedamp": ("sigma", (0.1, 1.0)),
        # It has two layers: a head of both would be all of the model.
        "fedper": None,
        "fedala": ("eta", (0.1, 10.0)),
    }
}
"""What is tried instead where a model asks for other values."""

TRIALS = len(RATES["adam"]) + len(AROUND)

VALIDATION = 0.2

TWO_MODELS = ("fedamp", "heurfedamp", "autoamp", "pfedgraph")
"""Methods that give a client two models of its own: w, which it trained, and u, which the server mixed for it."""


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
    "peers-digits": Setting("digits, practical", _DIGITS),
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
LR = "lr"
TRIAL = "tune-"
"""How the label of a trial begins."""


def compared(name: str) -> list[str]:
    """Return the methods of a table, group by group; those that are not there yet are left out."""
    wanted = PLACES[name].methods or [method for method in METHODS if method not in NEED_NORM]
    known = [method for method in wanted if method in METHODS]
    return [method for group in GROUPS for method in known if METHODS[method].group == group]


def trained_as(method: str) -> str:
    """Return the method whose runs serve this one: its twin's, if it has one."""
    return twins.trained_as(method) or method


def knob_of(name: str, method: str) -> Knob | None:
    """Return the knob of a method in a setting, with the two values besides its default; None where it has none."""
    run = trained_as(method)
    instead = OF_MODEL.get(PLACES[name].model, {})
    return instead[run] if run in instead else KNOBS.get(run)


def default_of(method: str, parameter: str) -> Value:
    """Return the default of a method's parameter."""
    value: Value = parameters_of(method)[parameter]
    return value


WITHOUT = ("sketch",)
"""Parameters that came after these runs, and whose default is to do as before."""


def parameters_of(method: str) -> dict[str, Any]:
    """Return the parameters of a method with their defaults; those that change nothing in a run are left out."""
    return {each.name: each.default for each in fields(METHODS[method]) if each.name not in WITHOUT}


@dataclass(frozen=True)
class Choice:
    """A learning rate, and a value of the method's knob: None is the default."""

    lr: float
    own: Value | None = None


def first_trials(method: str) -> list[Choice]:
    """Return what is tried first: learning rates."""
    return [Choice(rate) for rate in RATES[METHODS[trained_as(method)].optimizer]]


def second_trials(name: str, method: str) -> list[Choice]:
    """Return what is tried at the best of the first rates; nothing until it is known."""
    best = best_of(name, method, first_trials(method))
    if best is None:
        return []
    knob = knob_of(name, method)
    if knob is None:
        return [Choice(float(f"{best.lr * factor:.2g}")) for factor in AROUND]
    return [Choice(best.lr, value) for value in knob[1]]


def trials_of(name: str, method: str) -> list[Choice]:
    """Return all that is tried for a method in a setting, as far as it is known already."""
    return [*first_trials(method), *second_trials(name, method)]


def chosen(name: str, method: str) -> Choice | None:
    """Return what validation chose; None until all is tried."""
    tried = trials_of(name, method)
    return best_of(name, method, tried) if len(tried) == TRIALS else None


def best_of(name: str, method: str, tried: Iterable[Choice]) -> Choice | None:
    """Return the best on validation samples, of equals the first; None until all are tried."""
    scores = validated(name, method, tried)
    return None if scores is None else max(scores, key=lambda choice: scores[choice])


def validated(name: str, method: str, tried: Iterable[Choice]) -> dict[Choice, float] | None:
    """Return the accuracies on validation samples, at the model that the method is scored at; None until all are."""
    found = {choice: results.read(name, trial_label(name, method, choice)) for choice in tried}
    scored = METHODS[method].scored
    scores = {choice: result["validation"][scored] for choice, result in found.items() if result is not None}
    return scores if len(scores) == len(found) else None


def judged(name: str, method: str, choice: Choice) -> str:
    """Return the model that a method is judged by at what was chosen: of two that are its own, validation's choice."""
    scored = METHODS[method].scored
    result = results.read(name, trial_label(name, method, choice)) if method in TWO_MODELS else None
    if result is None:
        return scored
    held: dict[str, float] = result["validation"]
    return max(held, key=lambda entry: (held[entry], entry == scored))


def label_of(name: str, method: str, choice: Choice) -> str:
    """Return the name of a method's runs with what was chosen, without the seed; a default is not in it."""
    knob = knob_of(name, method)
    own = "" if knob is None or choice.own is None else f"-{knob[0]}-{short(choice.own)}"
    return f"{trained_as(method)}-{LR}-{short(choice.lr)}{own}"


def trial_label(name: str, method: str, choice: Choice) -> str:
    """Return the name of the run in which something is tried."""
    return f"{TRIAL}{label_of(name, method, choice)}"


def short(value: Value) -> str:
    """Return a value as a label and a table have it."""
    return value if isinstance(value, str) else f"{value:g}"


def table(name: str) -> list[Cell]:
    """Return the cells of a table: each method's trials, then its first seed; the other seeds come after all methods.

    So a table that is not finished has all methods, with fewer seeds. What waits for trials is not there yet.
    """
    methods = list(dict.fromkeys(trained_as(method) for method in compared(name)))
    if not PLACES[name].trials:
        return [Cell(name, method, values_of(name, method, SEEDS[0]), keeps_weights=False) for method in methods]
    cells = [cell for method in methods for cell in (*_trials(name, method), *_runs(name, method, SEEDS[0]))]
    return cells + [cell for seed in SEEDS[1:] for method in methods for cell in _runs(name, method, seed)]


def _sharing(name: str, method: str) -> list[str]:
    """Return the methods of a table that this one's runs serve."""
    return [each for each in compared(name) if trained_as(each) == method]


def _trials(name: str, method: str) -> Iterator[Cell]:
    """Return the trials of a method and of its twins."""
    tried = [*first_trials(method), *(one for each in _sharing(name, method) for one in second_trials(name, each))]
    for choice in dict.fromkeys(tried):
        values = values_of(name, method, CHOICE_SEED, choice, trial=True)
        yield Cell(name, trial_label(name, method, choice), values, keeps_weights=False)


def _runs(name: str, method: str, seed: int) -> Iterator[Cell]:
    """Return the runs of a method and of its twins with what each of them chose."""
    found = dict.fromkeys(one for each in _sharing(name, method) if (one := chosen(name, each)) is not None)
    for choice in found:
        values = values_of(name, method, seed, choice)
        yield Cell(name, f"{label_of(name, method, choice)}-seed{seed}", values, keeps_weights=False)


def values_of(name: str, method: str, seed: int, choice: Choice | None = None, trial: bool = False) -> dict[str, Any]:
    """Return the configuration of a run; a trial has half the rounds and holds out validation samples.

    Optimiser, learning rate and all parameters of the method are in it, defaults too: were a default changed later, a
    result with the old one could be told from a current one.
    """
    values = dict(PLACES[name].values)
    rounds = values["rounds"] // 2 if trial else values["rounds"]
    kind, own = METHODS[method], parameters_of(method)
    if method in ("fedamp", "heurfedamp"):
        # In these few rounds alpha falls as far as in the paper's 90; the oracle knows what no deployment does.
        own |= {"alpha_every": max(1, round(rounds / 3)), "self_weight": "uniform"}
    knob = knob_of(name, method)
    if choice is not None and choice.own is not None and knob is not None:
        own[knob[0]] = choice.own
    rate = {"optimizer": kind.optimizer, LR: kind.lr if choice is None else choice.lr}
    held_out = {"validation": VALIDATION} if trial else {}
    return {**values, **rate, **held_out, "rounds": rounds, "method": Named(method, own), "seed": seed}
