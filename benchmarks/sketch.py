"""What sketches of models change: distances, weights and scores, against those of the models themselves.

    python benchmarks/sketch.py

Digits, practical setting. For each k: the relative error of squared distances of trained models, against the root of
2/k that the formula allows at most; how much of FedAMP's, HeurFedAMP's and AutoAMP's weights goes to other clients
(half the sum of |difference|, the mean over clients); and the mean test accuracy of whole runs with `sketch=k`. Nothing
is chosen by these scores. `cut` is the weight that a client's c loudest speakers, itself counted, leave out.
"""

import statistics
from dataclasses import replace

import torch
from torch import Tensor

import fedamp
from fedamp.methods import make_method
from fedamp.methods.attention import sketch, squared_distances
from fedamp.methods.attention.bias_variance import collaboration

SIZES = (64, 256, 1024, 4096, 16384)
KEPT = (5, 10, 20)
MODELS = {"mlp, hidden 512": ({"name": "mlp", "hidden": 512}, 20), "cnn": ("cnn", 20)}
SEEDS, ROUNDS, LONG = (0, 1, 2), 6, 15


def trained(model: object, clients: int, method: str, rounds: int, seed: int = 0, **parameters: int):
    """Return a run on the digits."""
    settings = {"data": "digits", "setting": "practical", "clients": clients, "progress": False}
    return fedamp.run(model=model, method={"name": method, **parameters}, rounds=rounds, seed=seed, **settings)


def moved_weight(xi: Tensor, exact: Tensor) -> float:
    """Return how much weight goes to others, the mean over clients."""
    return float((xi - exact).abs().sum(1).mean() / 2)


def weights(name: str, w: Tensor, size: int) -> Tensor:
    """Return a method's weights of these models."""
    method = replace(make_method(name), sketch=size)
    return method.collaboration_weights(w, torch.zeros((len(w), 1), dtype=torch.float64), 1e4)[0]


def probed(result, size: int) -> Tensor:
    """Return AutoAMP's weights of the half models that a run has ended with, or of their sketches."""
    state = result.last_state.server
    of = [state.rows["first"].params, state.rows["second"].params, state.shared["start"].params]
    a, b, start = [sketch(each, size) for each in of] if size else of
    bias_weight = torch.full((len(a),), result.method.bias_weight, dtype=torch.float64)
    return collaboration(a, b, start, state.rows["samples"].params[:, 0], bias_weight).xi


def errors(title: str, model: object, clients: int) -> None:
    """Print the errors of distances and weights of trained models."""
    result, auto = (trained(model, clients, name, ROUNDS) for name in ("fedamp", "autoamp"))
    w = result.models["own"].params
    pair = ~torch.eye(len(w), dtype=torch.bool)
    exact = squared_distances(w)[pair]
    print(f"{title}, {clients} clients, {w.shape[1]} parameters, {ROUNDS} rounds")
    print("      k  distances  largest  root of 2/k  fedamp  heurfedamp  autoamp")
    for size in SIZES:
        off = squared_distances(sketch(w, size))[pair] / exact - 1
        told = [moved_weight(weights(name, w, size), weights(name, w, 0)) for name in ("fedamp", "heurfedamp")]
        told.append(moved_weight(probed(auto, size), probed(auto, 0)))
        rms, most = float(off.square().mean().sqrt()), float(off.abs().max())
        numbers = f"{size:7d} {rms:10.4f} {most:8.4f} {(2 / size) ** 0.5:12.4f}"
        print(f"{numbers} {told[0]:7.4f} {told[1]:11.4f} {told[2]:8.4f}")
    for name, xi in (("fedamp", weights("fedamp", w, 0)), ("autoamp", probed(auto, 0))):
        loudest = xi.sort(1, descending=True).values
        left = ", ".join(f"{c}: {float(1 - loudest[:, :c].sum(1).mean()):.3f}" for c in KEPT)
        print(f"cut, {name}: {left}", flush=True)


def scores(title: str, model: object, clients: int) -> None:
    """Print the mean test accuracy of whole runs."""
    print(f"{title}, {clients} clients, {LONG} rounds: mean test accuracy after the last, {len(SEEDS)} seeds")
    for name in ("fedamp", "heurfedamp"):
        for size in (0, *SIZES):
            last = [trained(model, clients, name, LONG, seed, sketch=size).summary.last for seed in SEEDS]
            each = ", ".join(f"{one:.2f}" for one in last)
            print(f"  {name:11s} sketch {size:6d}: {statistics.mean(last):.2f} ({each})", flush=True)


if __name__ == "__main__":
    for title, (model, clients) in MODELS.items():
        errors(title, model, clients)
    title = next(iter(MODELS))
    scores(title, *MODELS[title])
