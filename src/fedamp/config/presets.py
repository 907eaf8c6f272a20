"""The paper's experiments, by name: 4 data sets x 3 settings, with each method's hyperparameters.

What the paper gives: models, batch 100, 10 local epochs, Adam at 1e-3 and 90 rounds (SCAFFOLD and APFL: SGD at 1e-2
and 600 rounds), FedProx mu 1e-2, lambda 1 and the schedule of alpha, xi_ii = 1/(N_i + 1), and EMNIST's practical
setting in full.

What it does not give is settled here by one rule for all data sets: 50 clients (EMNIST: 62); in the practical setting
five groups of ten, the groups' dominating classes partition the labels in order, 80 % of a client's samples are from
them, and clients of the first three groups have twice the samples of the others; 100 test samples a client, no shared
training samples. The number of samples follows from what training alone reaches: the sizes below are those at which
Separate comes near the paper's figure, in trials of 4 or 5 rounds with 20 clients and another seed (found, paper):

    practical     MNIST 100 (50) 85.7, 86.30   FMNIST 200 (100) 86.8, 86.73   CIFAR100 1000 (500) 23.4, 39.99
    iid           FMNIST 500 80.9, 81.66       EMNIST 150 56.0, 54.41         CIFAR100 1000 9.4, 9.82
    pathological  MNIST 100 98.7, 98.73        FMNIST 200 97.3, 97.67         EMNIST 300 98.8, 99.15
                  CIFAR100 1000 91.95, 92.67

MNIST's 99.27 in the IID setting was out of reach of such trials: it has 800, a guess. CIFAR100's 1000 is as many as
there are for 50 clients (paper/sizes.py). The self weight is the oracle's only in the practical setting, where
there are groups; elsewhere it is uniform.

Often only the test split of EMNIST is at hand, in which some classes are too small for all: its clients may share
training samples, and the record says how many do. sigma and APFL's mixture, in the practical setting of the MNIST
family: what validation chose for the clients' own models (docs/reproduction.md). Elsewhere the median of the distances,
and 0.5, which is not tuned.
"""

from typing import Any

from fedamp import checks

DATA_SETS = ("mnist", "fmnist", "emnist", "cifar100")
SETTINGS = ("iid", "pathological", "practical")
PRESETS = tuple(f"paper/{data}-{setting}" for data in DATA_SETS for setting in SETTINGS)

_SAMPLES = {
    "practical": {"mnist": 100, "fmnist": 200, "cifar100": 1000},  # of the first three groups
    "iid": {"mnist": 800, "fmnist": 500, "emnist": 150, "cifar100": 1000},
    "pathological": {"mnist": 100, "fmnist": 200, "emnist": 300, "cifar100": 1000},
}


_SIGMA = {
    "mnist": {"fedamp": 1000.0, "heurfedamp": 10.0},
    "fmnist": {"fedamp": 10.0, "heurfedamp": 100.0},
    "emnist": {"fedamp": 10.0, "heurfedamp": 10.0},
}
_MIXTURE = {"mnist": 0.9, "fmnist": 0.1, "emnist": 0.1}


def preset(name: str, method: str) -> dict[str, Any]:
    """Return the settings of a run, as `RunConfig` takes them, for a method in one of the paper's experiments."""
    checks.one_of("preset", name, PRESETS)
    data, setting = name.removeprefix("paper/").split("-")
    return {
        "data": data,
        "clients": 62 if data == "emnist" else 50,
        "setting": {"name": setting, **_setting(data, setting)},
        "model": "resnet18" if data == "cifar100" else "cnn",
        "method": {"name": method, **_hyperparameters(data, setting, method)},
        "rounds": 600 if method in ("scaffold", "apfl") else 90,
        "epochs": 10,
        "batch_size": 100,
    }


def _setting(data: str, setting: str) -> dict[str, Any]:
    shared: dict[str, Any] = {"test_samples": 100}
    if data == "emnist":
        shared["share_samples"] = True
    if setting == "iid":
        return {**shared, "samples": _SAMPLES[setting][data]}
    if setting == "pathological":
        return {**shared, "classes": 2, "samples": _SAMPLES[setting][data]}
    if data == "emnist":  # digits, A-Z, a-z: as the paper gives it
        parts = [10, 26, 26]
        return {
            **shared,
            "groups": 3,
            "group_clients": parts,
            "group_classes": parts,
            "sizes": [1000, 700, 400],
            "share": 0.8,
        }
    large = _SAMPLES[setting][data]
    return {**shared, "groups": 5, "sizes": [large] * 3 + [large // 2] * 2, "share": 0.8}


def _hyperparameters(data: str, setting: str, method: str) -> dict[str, Any]:
    if method in ("fedprox", "fedprox-ft"):
        return {"mu": 1e-2}
    if method == "scaffold":
        return {"global_step": 1.0}
    if method == "apfl":
        return {"mixture": _MIXTURE.get(data, 0.5) if setting == "practical" else 0.5}
    if method not in ("fedamp", "heurfedamp"):
        return {}
    sigma: float | str = "median"
    if setting == "practical" and data in _SIGMA:
        sigma = _SIGMA[data][method]
    self_weight = "oracle" if setting == "practical" else "uniform"
    return {"sigma": sigma, "self_weight": self_weight, "lam": 1.0, "alpha": "paper", "start": "u"}
