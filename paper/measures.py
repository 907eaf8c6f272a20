"""The numbers that the page's text takes from results/, each as it is printed; "not run" where a run is missing."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from paper import results
from paper.experiments import TROUBLES, label_of
from paper.outcomes import NOT_RUN, ROBUST, WRONG, Row, Scores, mean, scores_of_label


def accuracy_of_tuning_run(value: int) -> str:
    """Return the test accuracy of u in MNIST's tuning run of HeurFedAMP with this sigma."""
    result = results.read("tune-mnist", label_of("heurfedamp", value))
    return NOT_RUN if result is None else f"{result['received']['best']:.2f}"


def tuned_spread(data: str, values: Sequence[float]) -> str:
    """Return how far apart the validation scores of FedAMP's w are at these values of sigma."""
    tried = [results.read(f"tune-{data}", label_of("fedamp", value)) for value in values]
    scores = [result["validation"]["own"] for result in tried if result is not None]
    return f"{max(scores) - min(scores):.2f}" if len(scores) == len(values) else NOT_RUN


def mean_of_rounds(label: str, entry: str, first: int, last: int) -> str:
    """Return the mean accuracy of EMNIST runs over some rounds (from 1) and all seeds."""
    curves = [one["curve"][first - 1 : last] for one in scores_of_label("table3-emnist", label, entry).values()]
    rounds = [value for curve in curves for value in curve]
    return f"{statistics.mean(rounds):.2f}" if rounds else NOT_RUN


def weights_within_and_between(table: str, label: str, k: int) -> tuple[str, str]:
    """Return the mean weight, in round k of the first seed, of clients of the same group and of other groups."""
    result = results.read(table, f"{label}-seed0")
    if result is None:
        return NOT_RUN, NOT_RUN
    groups, xi = _groups_and_weights(result, k)
    pairs = [(i, j) for i, j in itertools.product(range(len(xi)), repeat=2) if i != j]
    same = [xi[i][j] for i, j in pairs if groups[i] == groups[j]]
    other = [xi[i][j] for i, j in pairs if groups[i] != groups[j]]
    return f"{statistics.mean(same):.4f}", f"{statistics.mean(other):.4f}"


def largest_share(table: str, label: str, k: int) -> str:
    """Return the largest share that one group gets, in round k of the first seed, from the clients of other groups."""
    result = results.read(table, f"{label}-seed0")
    if result is None:
        return NOT_RUN
    groups, xi = _groups_and_weights(result, k)
    shares = {
        group: statistics.mean(
            sum(weight for weight, of in zip(row, groups, strict=True) if of == group) / (1 - row[i])
            for i, row in enumerate(xi)
            if groups[i] != group
        )
        for group in set(groups)
    }
    return f"{max(shares.values()):.2f}"


def _groups_and_weights(result: dict[str, Any], k: int) -> tuple[list[int], list[list[float]]]:
    return result["groups"], result["xi"][str(k)]


def gains_by_group(mine: Scores, theirs: Scores) -> dict[int, str]:
    """Return the mean gain in each of EMNIST's three groups of clients, over the seeds that both have."""
    gains: dict[int, list[float]] = {}
    for seed in sorted(mine.keys() & theirs.keys()):
        groups = mine[seed]["run"]["groups"]
        for group, ours, other in zip(groups, mine[seed]["per_client"], theirs[seed]["per_client"], strict=True):
            gains.setdefault(group, []).append(ours - other)
    return {group: f"{statistics.mean(gains[group]):+.2f}" if group in gains else NOT_RUN for group in range(3)}


def last_round_with_groups(label: str) -> str:
    """Return the last round, over the seeds, in which the weights of EMNIST's runs tell the groups apart."""
    runs = [one["run"]["recovery"] for one in scores_of_label("table3-emnist", label, "own").values()]
    rounds = [k for recovery in runs for k, index in enumerate(recovery, start=1) if index > 0.5]
    return str(max(rounds)) if rounds else NOT_RUN


def latest_best_round(table: str, label: str, entry: str) -> str:
    """Return the latest round, over the seeds, in which a run was at its best."""
    rounds = [one["best_round"] for one in scores_of_label(table, label, entry).values()]
    return str(max(rounds)) if rounds else NOT_RUN


def earlier_cifar100() -> dict[str, str]:
    """Return what AutoAMP's first, longer run on CIFAR100 reached, and the last round in which u was behind w."""
    run = results.read("auto-cifar100", "practical-40-rounds-seed0")
    if run is None:
        return dict.fromkeys(("cifar100_earlier_own", "cifar100_earlier_received", "cifar100_behind"), NOT_RUN)
    own, received = run["own"], run["received"]
    behind = [k for k, (w, u) in enumerate(zip(own["curve"], received["curve"], strict=True), start=1) if u < w]
    best = {f"cifar100_earlier_{entry}": f"{run[entry]['best']:.2f}" for entry in ("own", "received")}
    return {**best, "cifar100_behind": str(max(behind))}


def best_of_first(table: str, label: str, entry: str, rounds: int) -> str:
    """Return the mean over the seeds of the best accuracy of the first rounds."""
    best = [max(one["curve"][:rounds]) for one in scores_of_label(table, label, entry).values()]
    return f"{statistics.mean(best):.2f}" if best else NOT_RUN


def behind_the_best(name: str) -> list[str]:
    """Return in which rows of the robustness table another column has a higher mean, and by how much."""
    found = []
    for trouble in TROUBLES:
        means = {row.name: float(mean(scores)) for row, scores in _robust(trouble).items() if scores}
        if name not in means:
            found.append(f"where {WRONG[trouble]}, it was {NOT_RUN}")
            continue
        best = max(means, key=lambda other: means[other])
        if means[best] > means[name]:
            found.append(f"where {WRONG[trouble]}, {best} is {means[best] - means[name]:.2f} higher")
    return found


def largest_loss(trouble: str) -> str:
    """Return the most that any column of the robustness table loses by a trouble, in points."""
    clean = _robust("clean")
    lost = [
        float(mean(clean[row])) - float(mean(scores))
        for row, scores in _robust(trouble).items()
        if scores and clean[row]
    ]
    return f"{max(lost):.2f}" if lost else NOT_RUN


def _robust(trouble: str) -> dict[Row, Scores]:
    return {row: scores_of_label("robust-fmnist", f"{trouble}-{row.run}", row.entry) for row in ROBUST}


def diminishing() -> str:
    """Return how close diminishing steps came, in words."""
    measured = results.read_theorems()
    convex, smooth = measured["convex"]["diminishing"], measured["smooth"]["diminishing"]
    return (
        f"from round 1 to {convex[-1]['k']}, H - H\\* of the first problem falls from {convex[0]['gap']:.3g} to "
        f"{convex[-1]['gap']:.2g}, and the squared gradient of the second from {smooth[0]['gradient']:.3g} to "
        f"{smooth[-1]['gradient']:.2g}"
    )
