"""The scores in results/ by the rows of the paper's tables, beside the paper's own; what one row gains over another."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedamp.report.stats import short_p, wilcoxon_p
from paper import results
from paper.experiments import TRAINED, label_of, tuned
from paper.plans import GRIDS, SEEDS
from paper.published import SETTING, Setting

Scores = Mapping[int, Mapping[str, Any]]
"""The scores of one model of a run, by seed; under "run" the whole result."""

TITLES = {"mnist": "MNIST", "fmnist": "FMNIST", "emnist": "EMNIST", "cifar100": "CIFAR100"}
NOT_RUN = "not run"

OUT_OF_TIME, CUT = "the time for it was over", "†"
"""Why a run ended that might still have got better, and how its score is marked."""

CHANCE = 0.05
"""Below this a p, corrected for the number of tests, tells two methods apart."""


@dataclass(frozen=True)
class Row:
    """A row of the paper's tables: which run it is read from, and by which of its models the method is judged."""

    name: str
    run: str
    entry: str  # "own": after local training; "received": what the server sent
    place: int | None  # of the paper's figure; None for what is not in the paper

    @property
    def title(self) -> str:
        """Its name in a table, which says what is ours."""
        method, comma, model = self.name.partition(",")
        return self.name if self.place is not None else f"{method} (ours){comma}{model}"


ROWS = (
    Row("Separate", "separate", "own", 0),
    Row("FedAvg", "fedavg", "received", 1),
    Row("FedProx", "fedprox", "received", 2),
    Row("FedAvg-FT", "fedavg", "own", 3),
    Row("FedProx-FT", "fedprox", "own", 4),
    Row("SCAFFOLD", "scaffold", "own", 5),
    Row("APFL", "apfl", "own", 6),
    Row("FedAMP, w", "fedamp", "own", 7),
    Row("FedAMP, u", "fedamp", "received", 7),
    Row("HeurFedAMP, w", "heurfedamp", "own", 8),
    Row("HeurFedAMP, u", "heurfedamp", "received", 8),
    Row("FedAMP local, w", "fedamp-local", "own", None),
    Row("FedAMP local, u", "fedamp-local", "received", None),
    Row("AutoAMP, w", "autoamp", "own", None),
    Row("AutoAMP, u", "autoamp", "received", None),
)
OURS = ROWS[-8:]
ROBUST = [row for row in ROWS if row.run in (*TRAINED, "autoamp")]


WRONG = {
    "clean": "nothing",
    "noise20": "20 % of all training labels are wrong",
    "noise40": "40 % of all training labels are wrong",
    "absent20": "a client is away with probability 0.2",
    "absent50": "a client is away with probability 0.5",
    "poisoned": "5 of 50 clients send flipped, scaled models",
    "flipped": "5 of 50 clients train with labels turned around",
}
"""What goes wrong in a row of the robustness table, in words."""


def row_named(name: str) -> Row:
    """Return a row by its name."""
    return next(row for row in ROWS if row.name == name)


def scores_of(table: str, row: Row) -> dict[int, dict[str, Any]]:
    """Return the scores of a row of a table, by seed."""
    kind, _, data = table.partition("-")
    if row.run == "autoamp":
        return scores_of_label(f"auto-{data}", SETTING[kind], row.entry)
    label = row.run
    if row.run in GRIDS:
        value = tuned(data, row.run, row.entry, kind)
        if value is None:
            return {}
        label = label_of(row.run, value)
    return scores_of_label(table, label, row.entry)


def scores_of_label(table: str, label: str, entry: str) -> dict[int, dict[str, Any]]:
    """Return the scores of one of a run's models, by seed."""
    runs = {seed: results.read(table, f"{label}-seed{seed}") for seed in SEEDS}
    return {seed: {**run[entry], "run": run} for seed, run in runs.items() if run is not None and entry in run}


def titled(setting: Setting) -> str:
    """Return one of the twelve settings as the text names it."""
    kind, data = setting
    return f"{TITLES[data]} {SETTING[kind].replace('iid', 'IID')}"


def score(scores: Scores, which: str = "best") -> str:
    """Return mean and standard deviation over the seeds, for a table."""
    best = [one[which] for one in scores.values()]
    if not best:
        return NOT_RUN
    if len(best) == 1:
        cut = any(one["run"].get("stopped") == OUT_OF_TIME for one in scores.values())
        return f"{best[0]:.2f}{CUT * cut}"
    seeds = "" if len(best) == len(SEEDS) else f" ({len(best)})"
    return f"{statistics.mean(best):.2f} ± {statistics.stdev(best):.2f}{seeds}"


def mean(scores: Scores, which: str = "best") -> str:
    """Return the mean over the seeds, for the text."""
    return f"{statistics.mean(one[which] for one in scores.values()):.2f}" if scores else NOT_RUN


@dataclass(frozen=True)
class Gain:
    """What one model gains over another: the mean over clients in points, and Wilcoxon's p or why there is none."""

    points: float
    p: float | None
    why: str  # why there is no p

    @property
    def p_text(self) -> str:
        """The p, or why there is none."""
        return self.why if self.p is None else short_p(self.p)


def gained(mine: Scores, theirs: Scores) -> Gain | None:
    """Return the gain over clients, each at its mean over the seeds that both have; None where they share no seed."""
    both = mine.keys() & theirs.keys()
    if not both:
        return None
    ours, others = ([statistics.mean(client) for client in _of_clients(of, both)] for of in (mine, theirs))
    points = statistics.mean(a - b for a, b in zip(ours, others, strict=True))
    return Gain(points, *wilcoxon_p(ours, others))


def holm(values: Sequence[float]) -> list[float]:
    """Return p values corrected by Holm's method, in the order in which they came.

    The smallest of n is multiplied by n, the next by n - 1 and so on; none is smaller than one before it, none above 1.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = least
    return corrected


def gain(mine: Scores, theirs: Scores) -> str:
    """Return a gain and its p, for a table."""
    over = gained(mine, theirs)
    return NOT_RUN if over is None else f"{over.points:+.2f}, {over.p_text}"


def gain_in_words(mine: Scores, theirs: Scores) -> str:
    """Return a gain and its p, for the text."""
    over = gained(mine, theirs)
    if over is None:
        return NOT_RUN
    p = over.p_text if over.p is None else f"p {over.p_text}" if over.p_text.startswith("<") else f"p = {over.p_text}"
    return f"{over.points:+.2f} points ({p})"


def _of_clients(scores: Scores, seeds: Collection[int]) -> list[tuple[float, ...]]:
    """Return the accuracies of each client, one for each seed; poisoned clients are left out."""
    poisoned = {number for seed in seeds for number in scores[seed]["run"]["description"]["poisoned"]}
    clients = zip(*(scores[seed]["per_client"] for seed in sorted(seeds)), strict=True)
    return [client for number, client in enumerate(clients) if number not in poisoned]
