"""What privacy costs, and what collaboration is then worth: the runs behind the curve in docs/privacy.md.

Every method at every epsilon gets the same effort: four learning rates on validation samples, then three seeds with
the best. Batch size, rounds, epochs and clip are the same for all of them; noise is what the account asks for.
Where nothing is protected, they train as they would if privacy were no matter: more epochs, on the digits in smaller
minibatches.
Fine-tuned methods are the trajectory of the plain ones, scored at the clients' own models. FedAMP and AutoAMP hand out
two models, w and u: which one counts is chosen with the rate, by the same validation samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedamp.config import Named
from fedamp.config.presets import preset
from paper import results
from paper.experiments import CHOICE_SEED, SEEDS, Cell
from paper.peers import LR, TRIAL, VALIDATION, parameters_of, trained_as

OWN, RECEIVED = "own", "received"  # w, the model that a client trained, and u, the one that the server sent
COMPARED = {
    "separate": (OWN,),
    "fedavg": (RECEIVED,),
    "fedavg-ft": (OWN,),
    "fedprox-ft": (OWN,),
    "fedamp": (OWN, RECEIVED),
    "autoamp": (OWN, RECEIVED),
}
"""The methods, and which of a run's models a client may take home."""
EPSILONS = (1.0, 2.0, 4.0, 8.0, None)
"""What all rounds together may spend on each client's single samples; None: samples are not protected."""
RATES = (0.1, 0.3, 1.0, 3.0)
"""Learning rates of plain SGD that are tried, the same for all: with noise Adam's steps are as long as the noise is."""


@dataclass(frozen=True)
class Place:
    """Where the curve is measured."""

    title: str
    values: Mapping[str, Any]  # of a RunConfig, all but method, seed and epsilon
    unprotected: Mapping[str, Any]  # what differs where nothing is protected: who need not count takes more steps


@dataclass(frozen=True)
class Choice:
    """What a method runs with, and the model it is scored at."""

    rate: float
    entry: str


def _fmnist() -> dict[str, Any]:
    values = preset("paper/fmnist-practical", "separate")
    del values["method"]
    # Noise grows with the number of parameters: a small net. Of two ways to spend the same in 30 rounds (1 epoch in
    # minibatches of 200, or 2 of 100) the better for Separate and FedAvg together on validation samples, seed 100, at
    # epsilon 2 and 8: 72.8, 61.6, 77.7 and 73.0 against 73.0, 55.3, 76.6 and 72.1.
    return {**values, "model": "cnn-small", "rounds": 30, "epochs": 2, "batch_size": 100}


PLACES = {
    "privacy-digits": Place(
        "digits, practical",
        {
            **{"data": "digits", "setting": "practical", "clients": 20, "model": "mlp"},
            # Of four ways to spend the same (batches of 20 or 50, 1 to 5 epochs, 15 or 30 rounds, clip 0.3 or 1) the
            # best for Separate and FedAvg together on validation samples, seed 100, at epsilon 2 and 8.
            **{"rounds": 30, "epochs": 1, "batch_size": 50, "dp_delta": 1e-3},
        },
        {"epochs": 5, "batch_size": 10},
    ),
    "privacy-fmnist": Place("FMNIST, practical", {**_fmnist(), "dp_delta": 1e-4}, {"epochs": 5, "batch_size": 100}),
}
NAMES = list(PLACES)


def table(name: str) -> list[Cell]:
    """Return the cells of a table: all trials, then what they chose, seed by seed; what waits for trials is not there
    yet.
    """
    runs = list(dict.fromkeys(trained_as(method) for method in COMPARED))
    cells = [
        Cell(name, trial_label(run, epsilon, rate), values_of(name, run, epsilon, rate, CHOICE_SEED, trial=True))
        for epsilon in EPSILONS
        for run in runs
        for rate in RATES
    ]
    return cells + [cell for seed in SEEDS for epsilon in EPSILONS for cell in _runs(name, epsilon, seed)]


def _runs(name: str, epsilon: float | None, seed: int) -> Iterator[Cell]:
    cells: dict[str, Cell] = {}  # by label: two methods may share a run
    for method in COMPARED:
        choice = chosen(name, method, epsilon)
        if choice is not None:
            label = f"{label_of(method, epsilon, choice.rate)}-seed{seed}"
            values = values_of(name, trained_as(method), epsilon, choice.rate, seed)
            cells[label] = Cell(name, label, values, keeps_weights=False)
    yield from cells.values()


def label_of(method: str, epsilon: float | None, rate: float) -> str:
    """Return the name of a method's runs at an epsilon with a learning rate, without the seed."""
    return f"{trained_as(method)}-eps-{spelled(epsilon)}-{LR}-{rate:g}"


def trial_label(method: str, epsilon: float | None, rate: float) -> str:
    """Return the name of the run in which a learning rate is tried."""
    return f"{TRIAL}{label_of(method, epsilon, rate)}"


def spelled(epsilon: float | None) -> str:
    """Return an epsilon as labels and tables have it."""
    return "none" if epsilon is None else f"{epsilon:g}"


def chosen(name: str, method: str, epsilon: float | None) -> Choice | None:
    """Return what is best on validation samples after the last round; None until all rates are tried.

    Of equals the smallest rate, and w before u.
    """
    found = {rate: results.read(name, trial_label(method, epsilon, rate)) for rate in RATES}
    scores = {
        Choice(rate, entry): one["validation_last"][entry]
        for rate, one in found.items()
        if one is not None
        for entry in COMPARED[method]
    }
    tried = len(scores) == len(RATES) * len(COMPARED[method])
    return max(scores, key=lambda choice: scores[choice]) if tried else None


def values_of(
    name: str, method: str, epsilon: float | None, rate: float, seed: int, trial: bool = False
) -> dict[str, Any]:
    """Return the configuration of a run; a trial holds out validation samples, and is else the same.

    Without an epsilon there is no delta either, so that the run is one like any other.
    """
    values = dict(PLACES[name].values)
    own = parameters_of(method)
    if method == "fedamp":  # as in the comparison of all methods: no oracle, and alpha falls as in 90 rounds
        own |= {"alpha_every": max(1, round(values["rounds"] / 3)), "self_weight": "uniform"}
    if epsilon is None:
        del values["dp_delta"]
        values |= PLACES[name].unprotected
    else:
        values["dp_epsilon"] = epsilon
    held_out = {"validation": VALIDATION} if trial else {}
    return {**values, **held_out, "optimizer": "sgd", LR: rate, "method": Named(method, own), "seed": seed}
