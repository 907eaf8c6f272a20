"""The page's tables, in markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paper import results, sizes
from paper.automatic import LETTERS, automatic, counted, taken_home
from paper.experiments import TROUBLES, TUNING, VARIANTS, label_of, tuned
from paper.outcomes import (
    CHANCE,
    NOT_RUN,
    OURS,
    ROBUST,
    ROWS,
    TITLES,
    WRONG,
    Gain,
    gain,
    gained,
    holm,
    score,
    scores_of,
    scores_of_label,
)
from paper.plans import JUDGED, plan_of
from paper.published import DATA, PAPER, SETTING

NOTHING = "Not run yet."
Place = tuple[str, str, str]  # variant, data, model: a place in the table of changes


def main_table(kind: str) -> str:
    """Return one of the paper's tables, ours beside the paper's; of AutoAMP's models the one that counts is bold."""
    lines = ["| method | " + " | ".join(f"{TITLES[data]} | paper" for data in DATA) + " |"]
    lines.append("|---|" + "---:|" * (2 * len(DATA)))
    for row in ROWS if kind == "table3" else [row for row in ROWS if row.run != "fedamp-local"]:
        cells = []
        for data in DATA:
            found = score(scores_of(f"{kind}-{data}", row))
            counts = row.run == "autoamp" and row.entry == counted(data, SETTING[kind]) and found != NOT_RUN
            paper = "–" if row.place is None else f"{PAPER[kind][data][row.place]:.2f}"
            cells += [f"**{found}**" if counts else found, paper]
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def short_table(kind: str) -> str:
    """Return one of the paper's tables with the paper's figures in brackets, and AutoAMP's models that count."""
    lines = ["| method | " + " | ".join(TITLES[data] for data in DATA) + " |", "|---|" + "---:|" * len(DATA)]
    for row in [row for row in ROWS if row.place is not None]:
        cells = [f"{score(scores_of(f'{kind}-{data}', row))} ({PAPER[kind][data][row.place]:.2f})" for data in DATA]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    lines.append("| **AutoAMP (ours)** | " + " | ".join(_taken_home(kind, data) for data in DATA) + " |")
    return "\n".join(lines)


def _taken_home(kind: str, data: str) -> str:
    """Return AutoAMP's score and which of its models it is of."""
    found = score(taken_home(f"{kind}-{data}"))
    return found if found == NOT_RUN else f"**{found}**, {LETTERS[counted(data, SETTING[kind])]}"


def significance(table: str) -> str:
    """Return Wilcoxon's tests over clients: a client's accuracy is its mean over the seeds that both have."""
    mine = [row for row in OURS if table.startswith("table3") or row.run != "fedamp-local"]
    mine = [row for row in mine if scores_of(table, row)]
    if not mine:
        return NOTHING
    lines = ["| against | " + " | ".join(row.name for row in mine) + " |", "|---|" + "---:|" * len(mine)]
    for row in ROWS[: -len(OURS)]:
        cells = [gain(scores_of(table, ours), scores_of(table, row)) for ours in mine]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tuning(data: str, kind: str = "table3") -> str:
    """Return what was tried for each knob: validation accuracies (in bold where chosen) and test accuracies.

    The test accuracies played no part in the choice.
    """
    if not any(results.read_all(f"{TUNING[kind]}-{data}")):
        return NOTHING
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
    """Return what FedAMP loses or gains by each change, with an arrow where it can be told from as it is."""
    sets = [(data, entry) for data in ("emnist", "fmnist") for entry in ("own", "received")]
    heads = [f"{TITLES[data]}, {'w' if entry == 'own' else 'u'}" for data, entry in sets]
    lines = ["| FedAMP | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(sets)]
    places = [(variant, *each) for variant in VARIANTS for each in sets]
    scores = {place: scores_of_label(f"ablation-{place[1]}", place[0], place[2]) for place in places}
    arrows = _arrows({place: gained(scores[place], scores["base", *place[1:]]) for place in places})
    for variant in VARIANTS:
        cells = [score(scores[variant, *each]) + arrows.get((variant, *each), "") for each in sets]
        lines.append(f"| {CHANGES[variant]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _arrows(gains: Mapping[Place, Gain | None]) -> dict[Place, str]:
    """Return which gains can be told from nothing, by Holm's correction over all that were tested."""
    tested = {place: gain for place, gain in gains.items() if gain is not None and gain.p is not None}
    corrected = holm([gain.p for gain in tested.values() if gain.p is not None])
    found = zip(tested.items(), corrected, strict=True)
    return {place: " ↑" if gain.points > 0 else " ↓" for (place, gain), p in found if p < CHANCE}


def robustness(which: str = "best") -> str:
    """Return what every method loses where something goes wrong, at its best or at its last round."""
    lines = ["| what is wrong | " + " | ".join(row.title for row in ROBUST) + " |", "|---|" + "---:|" * len(ROBUST)]
    for trouble in TROUBLES:
        found = [scores_of_label("robust-fmnist", f"{trouble}-{row.run}", row.entry) for row in ROBUST]
        lines.append(f"| {WRONG[trouble]} | " + " | ".join(score(each, which) for each in found) + " |")
    return "\n".join(lines)


def sized() -> str:
    """Return what Separate reached in CIFAR100's trials, by size, beside the paper's figure; bold where chosen."""
    every = sorted({size for tried in sizes.TRIED.values() for size in tried})
    lines = ["| samples | " + " | ".join(map(str, every)) + " | paper |", "|---|" + "---:|" * (len(every) + 1)]
    for setting in SETTING.values():
        scores, best = sizes.found("cifar100", setting), sizes.chosen("cifar100", setting)
        cells = [f"{scores[size]:.2f}" if size in scores else NOT_RUN for size in every if size in sizes.TRIED[setting]]
        cells = [""] * (len(every) - len(cells)) + cells  # the small ones are those that were not tried
        bold = [f"**{cell}**" if size == best else cell for size, cell in zip(every, cells, strict=True)]
        lines.append(f"| {setting} | " + " | ".join(bold) + f" | {sizes.published('cifar100', setting):.2f} |")
    return "\n".join(lines)


def theorems(name: str, value: str) -> str:
    """Return a theorem's measured curve beside its bound."""
    lines_of = results.read_theorems()[name]["lines"]
    lines = ["| K | seen | bound |", "|---:|---:|---:|"]
    lines += [f"| {line['K']} | {line[value]:.3g} | {line[value + '_bound']:.3g} |" for line in lines_of]
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Return all tables by the names that page.md has for them."""
    named = {"table3": "", "table2": "pathological_", "table1": "iid_"}
    every = [(kind, prefix, data) for kind, prefix in named.items() for data in DATA]
    return {
        **{kind: main_table(kind) for kind in PAPER},
        **{f"significance_{prefix}{data}": significance(f"{kind}-{data}") for kind, prefix, data in every},
        **{f"tuning_{prefix}{data}": tuning(data, kind) for kind, prefix, data in every},
        "sizes": sized(),
        "robustness_last": robustness("last"),
        "automatic": automatic(),
        "ablation": ablation(),
        "robustness": robustness(),
        "theorem1": theorems("convex", "gap"),
        "theorem2": theorems("smooth", "gradient"),
    }
