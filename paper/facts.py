"""The numbers in the page's text."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from experiments import PATIENCE, TROUBLES, TUNING_ROUNDS, VARIANTS, label_of
from outcomes import NOT_RUN, OURS, PAPER, ROBUST, ROWS, Row, Told, found, gained, mean, named, of_label, read


def tried(value: int) -> str:
    """Return the test accuracy that u came to in MNIST's tuning run of HeurFedAMP with this sigma."""
    told = read("tune-mnist", label_of("heurfedamp", value))
    return NOT_RUN if told is None else f"{told['received']['best']:.2f}"


def tuned_spread(data: str, values: Sequence[float]) -> str:
    """Return how far apart the validation scores of FedAMP's w are at these values of sigma."""
    told = [read(f"tune-{data}", label_of("fedamp", value)) for value in values]
    scores = [one["validation"]["own"] for one in told if one is not None]
    return f"{max(scores) - min(scores):.2f}" if len(scores) == len(values) else NOT_RUN


def in_words(mine: Told, theirs: Told) -> str:
    """Return a gain and its p, in words."""
    gain = gained(mine, theirs)
    if gain is None:
        return NOT_RUN
    p = gain.sure if gain.p is None else f"p {gain.sure}" if gain.sure.startswith("<") else f"p = {gain.sure}"
    return f"{gain.points:+.2f} points ({p})"


def against(table: str, ours: Row, other: str) -> str:
    """Return the gain of a row of a table over another by name, in words."""
    return in_words(found(table, ours), found(table, named(other)))


def brief(variant: str, other: str) -> str:
    """Return what u of a short run of FedAMP on EMNIST gains over a row of Table 3, in words."""
    return in_words(of_label("ablation-emnist", variant, "received"), found("table3-emnist", named(other)))


def window(label: str, entry: str, first: int, last: int) -> str:
    """Return the mean accuracy of EMNIST runs over some rounds (from 1) and all seeds."""
    curves = [one["curve"][first - 1 : last] for one in of_label("table3-emnist", label, entry).values()]
    rounds = [value for curve in curves for value in curve]
    return f"{statistics.mean(rounds):.2f}" if rounds else NOT_RUN


def weighed(table: str, label: str, k: int) -> tuple[str, str]:
    """Return the mean weight, in round k of the first seed, of clients of the same group and of other groups."""
    told = read(table, f"{label}-seed0")
    if told is None:
        return NOT_RUN, NOT_RUN
    groups, xi = told["groups"], told["xi"][str(k)]
    pairs = [(i, j) for i, j in itertools.product(range(len(xi)), repeat=2) if i != j]
    same = [xi[i][j] for i, j in pairs if groups[i] == groups[j]]
    other = [xi[i][j] for i, j in pairs if groups[i] != groups[j]]
    return f"{statistics.mean(same):.4f}", f"{statistics.mean(other):.4f}"


def heard(table: str, label: str, k: int) -> str:
    """Return the largest share that one group gets, in round k of the first seed, from the clients of other groups."""
    told = read(table, f"{label}-seed0")
    if told is None:
        return NOT_RUN
    groups, xi = told["groups"], told["xi"][str(k)]
    shares = {
        group: statistics.mean(
            sum(weight for weight, of in zip(row, groups, strict=True) if of == group) / (1 - row[i])
            for i, row in enumerate(xi)
            if groups[i] != group
        )
        for group in set(groups)
    }
    return f"{max(shares.values()):.2f}"


def by_group(mine: Told, theirs: Told) -> dict[str, str]:
    """Return the mean gain in each of EMNIST's groups of clients, over the seeds that both have."""
    both = sorted(mine.keys() & theirs.keys())
    gains: dict[int, list[float]] = {}
    for seed in both:
        told = zip(mine[seed]["run"]["groups"], mine[seed]["per_client"], theirs[seed]["per_client"], strict=True)
        for group, ours, other in told:
            gains.setdefault(group, []).append(ours - other)
    means = {group: f"{statistics.mean(gains[group]):+.2f}" for group in gains}
    return {f"group_{group}": means.get(group, NOT_RUN) for group in range(3)}


def last_read(label: str) -> str:
    """Return the last round, over the seeds, in which the weights of EMNIST's runs tell anything of the groups."""
    runs = [one["run"]["recovery"] for one in of_label("table3-emnist", label, "own").values()]
    told = [k for recovery in runs for k, index in enumerate(recovery, start=1) if index > 0.1]
    return str(max(told)) if told else NOT_RUN


def latest(table: str, label: str, entry: str) -> str:
    """Return the latest round, over the seeds, in which a run was at its best."""
    rounds = [one["best_round"] for one in of_label(table, label, entry).values()]
    return str(max(rounds)) if rounds else NOT_RUN


PREFIXES = (("", "table3"), ("pathological_", "table2"))


def facts() -> dict[str, object]:
    """Return them all, by the names that they have in page.md."""
    numbers = {
        f"{prefix}{data}_{row.run.replace('-', '_')}_{row.entry}": mean(found(f"{table}-{data}", row))
        for prefix, table in PREFIXES
        for data in ("emnist", "fmnist", "mnist")
        for row in ROWS
    }
    gains = {
        f"gain_{prefix}{data}_{ours.run.replace('-', '_')}_{ours.entry}_{other.replace('-', '')}": against(
            f"{table}-{data}", ours, other
        )
        for prefix, table in PREFIXES
        for data in ("emnist", "fmnist", "mnist")
        for ours in OURS
        for other in ("Separate", "FedAvg", "FedAvg-FT", "FedProx-FT")
    }
    changes = {}
    for data, variant, entry in itertools.product(("emnist", "fmnist"), VARIANTS, ("own", "received")):
        name = f"{data}_{variant.replace('-', '_')}_{entry}"
        told = of_label(f"ablation-{data}", variant, entry)
        changes[name] = mean(told)
        changes[f"lost_{name}"] = in_words(of_label(f"ablation-{data}", "base", entry), told)
    wrong = {
        f"{trouble}_{row.run}_{row.entry}_{which}": mean(
            of_label("robust-fmnist", f"{trouble}-{row.run}", row.entry), which
        )
        for trouble, row, which in itertools.product(TROUBLES, ROBUST, ("best", "last"))
    }
    local_in, local_out = weighed("table3-emnist", "fedamp-local", 10)
    return {
        **numbers,
        **gains,
        **changes,
        **wrong,
        **by_group(
            of_label("ablation-emnist", "no-oracle", "received"),
            found("table3-emnist", named("FedAMP, u")),
        ),
        **{f"brief_{other.replace('-', '')}": brief("no-oracle", other) for other in ("FedAvg-FT", "FedProx-FT")},
        **{
            f"{name}_{first}": window(label, "own", first, first + 9)
            for name, label in (("w", "heurfedamp-sigma-10"), ("ft", "fedavg"))
            for first in (51, 61)
        },
        **{f"tried_{value}": tried(value) for value in (1, 100)},
        "u_early": window("fedamp-sigma-10", "received", 8, 12),
        "u_middle": window("fedamp-sigma-10", "received", 51, 60),
        "emnist_fedamp_1000_own": mean(of_label("table3-emnist", "fedamp-sigma-1000", "own")),
        "emnist_tuned_spread": tuned_spread("emnist", (10.0, 100.0, 1000.0)),
        "local_in": local_in,
        "local_out": local_out,
        "heard": heard("table3-fmnist", "fedamp-local", 90),
        "last_read": last_read("heurfedamp-sigma-10"),
        "gradient_w": latest("ablation-emnist", "gradient", "own"),
        "gradient_u": latest("ablation-emnist", "gradient", "received"),
        "paper_gain": f"{PAPER['table3']['emnist'][7] - PAPER['table3']['emnist'][3]:.2f}",
        "tuning_rounds": TUNING_ROUNDS,
        "falls": TUNING_ROUNDS // 3,
        **{f"patience_{method}": rounds for method, rounds in PATIENCE.items()},
    }
