"""The page's tables, in markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paper import results
from paper.automatic import automatic
from paper.experiments import TROUBLES, TUNING, VARIANTS, label_of, tuned
from paper.outcomes import NOT_RUN, OURS, ROBUST, ROWS, TITLES, gain, score, scores_of, scores_of_label
from paper.plans import JUDGED, plan_of
from paper.published import DATA, PAPER


def main_table(kind: str, sets: Sequence[str] = DATA) -> str:
    """Return one of the paper's tables, ours beside the paper's."""
    lines = ["| method | " + " | ".join(f"{TITLES[data]} | paper" for data in sets) + " |"]
    lines.append("|---|" + "---:|" * (2 * len(sets)))
    for row in ROWS if kind == "table3" else [row for row in ROWS if row.run != "fedamp-local"]:
        cells = []
        for data in sets:
            paper = "–" if row.place is None else f"{PAPER[kind][data][row.place]:.2f}"
            cells += [score(scores_of(f"{kind}-{data}", row)), paper]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def significance(table: str) -> str:
    """Return Wilcoxon's tests over clients: a client's accuracy is its mean over the seeds that both have."""
    mine = [row for row in OURS if table.startswith("table3") or row.run != "fedamp-local"]
    lines = ["| against | " + " | ".join(row.name for row in mine) + " |", "|---|" + "---:|" * len(mine)]
    for row in ROWS[: -len(OURS)]:
        cells = [gain(scores_of(table, ours), scores_of(table, row)) for ours in mine]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tuning(data: str, kind: str = "table3") -> str:
    """Return what was tried for each knob: validation accuracies (in bold where chosen) and test accuracies.

    The test accuracies played no part in the choice.
    """
    lines = ["| method | knob | validation, w | validation, u | test, w | test, u |", "|---|---|" + "---:|" * 4]
    for method, (knob, values) in plan_of(data).grids.items():
        judged = JUDGED.get(method, ("own",))
        best = {entry: tuned(data, method, entry, kind) for entry in judged}
        for value in values:
            result = results.read(f"{TUNING[kind]}-{data}", label_of(method, value))
            chosen = [entry for entry in judged if best[entry] == value]
            cells = _tuning_cells(result, judged, chosen)
            lines.append(f"| {TITLES_OF[method]} | {knob} {value:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _tuning_cells(result: dict[str, Any] | None, judged: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Return validation accuracies of both models, then test accuracies; empty for a model that is not judged."""
    cells = []
    for entry in ("own", "received"):
        number = NOT_RUN if result is None else f"{result['validation'][entry]:.2f}"
        cells.append("" if entry not in judged else f"**{number}**" if entry in chosen else number)
    for entry in ("own", "received"):
        number = NOT_RUN if result is None else f"{result[entry]['best']:.2f}"
        cells.append(number if entry in judged else "")
    return cells


TITLES_OF = {"fedamp": "FedAMP", "heurfedamp": "HeurFedAMP", "apfl": "APFL"}
CHANGES = {
    "base": "as it is",
    "uniform": "no attention: all others weigh the same (sigma infinite)",
    "equal": "no attention, and no self weight of its own: everyone weighs 1/m",
    "no-oracle": "self weight 1/m instead of the paper's, which knows the groups",
    "start-w": "local training starts at the client's own model, not at its cloud model",
    "gradient": "Eq. 5 as printed (sigma the median; alpha lowered where a self weight would be negative)",
    "own-init": "each client begins at a random model of its own",
    "local": "a scale for each client (sigma local, sharpness 4), self weight 1/m",
}


def ablation() -> str:
    """Return what FedAMP loses or gains by each change."""
    sets = [(data, entry) for data in ("emnist", "fmnist") for entry in ("own", "received")]
    heads = [f"{TITLES[data]}, {'w' if entry == 'own' else 'u'}" for data, entry in sets]
    lines = ["| FedAMP | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(sets)]
    for variant in VARIANTS:
        cells = [score(scores_of_label(f"ablation-{data}", variant, entry)) for data, entry in sets]
        lines.append(f"| {CHANGES[variant]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


WRONG = {
    "clean": "nothing",
    "noise20": "20 % of all training labels are wrong",
    "noise40": "40 % of all training labels are wrong",
    "absent20": "a client is away with probability 0.2",
    "absent50": "a client is away with probability 0.5",
    "poisoned": "5 of 50 clients send flipped, scaled models",
}


def robustness() -> str:
    """Return what every method loses where something goes wrong."""
    lines = ["| what is wrong | " + " | ".join(row.name for row in ROBUST) + " |", "|---|" + "---:|" * len(ROBUST)]
    for trouble in TROUBLES:
        cells = [score(scores_of_label("robust-fmnist", f"{trouble}-{row.run}", row.entry)) for row in ROBUST]
        lines.append(f"| {WRONG[trouble]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def theorems(name: str, value: str) -> str:
    """Return a theorem's measured curve beside its bound."""
    lines_of = results.read_theorems()[name]["lines"]
    lines = ["| K | seen | bound |", "|---:|---:|---:|"]
    lines += [f"| {line['K']} | {line[value]:.3g} | {line[value + '_bound']:.3g} |" for line in lines_of]
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Return all tables by the names that page.md has for them."""
    family = ("emnist", "fmnist", "mnist")
    return {
        **{kind: main_table(kind) for kind in PAPER},
        **{f"significance_{data}": significance(f"table3-{data}") for data in family},
        **{f"significance_pathological_{data}": significance(f"table2-{data}") for data in family},
        **{f"tuning_{data}": tuning(data) for data in family},
        **{f"tuning_pathological_{data}": tuning(data, "table2") for data in family},
        "automatic": automatic(),
        "ablation": ablation(),
        "robustness": robustness(),
        "theorem1": theorems("convex", "gap"),
        "theorem2": theorems("smooth", "gradient"),
    }
