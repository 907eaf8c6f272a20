"""Write docs/reproduction.md and its figures from results/: `python paper/page.py` (figures need matplotlib).

Every number on the page comes from a file in results/, or from the paper; a cell that was not run says so.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

from scipy.stats import wilcoxon

from experiments import GRIDS, PATIENCE, RESULTS, SEEDS, VARIANTS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reproduction.md"
DATA = ("mnist", "fmnist", "emnist", "cifar100")
TITLES = {"mnist": "MNIST", "fmnist": "FMNIST", "emnist": "EMNIST", "cifar100": "CIFAR100"}
NOT_RUN = "not run"

# Huang et al., AAAI 2021: Tables 1 (IID), 2 (pathological) and 3 (practical), BMTA in percent.
METHODS = ("separate", "fedavg", "fedprox", "fedavg-ft", "fedprox-ft", "scaffold", "apfl", "fedamp", "heurfedamp")
NAMES = ("Separate", "FedAvg", "FedProx", "FedAvg-FT", "FedProx-FT", "SCAFFOLD", "APFL", "FedAMP", "HeurFedAMP")
PAPER = {
    "table1": {
        "mnist": (99.27, 99.31, 98.81, 98.98, 98.72, 98.89, 98.93, 99.22, 99.28),
        "fmnist": (81.66, 91.94, 90.19, 90.17, 89.02, 89.04, 91.03, 92.05, 91.80),
        "emnist": (54.41, 74.38, 73.14, 70.53, 69.49, 72.51, 73.95, 74.07, 74.07),
        "cifar100": (9.82, 49.59, 46.50, 35.07, 40.77, 43.06, 49.02, 45.68, 45.88),
    },
    "table2": {
        "mnist": (98.73, 98.39, 97.15, 99.66, 99.63, 99.34, 98.24, 99.53, 99.38),
        "fmnist": (97.67, 77.88, 83.80, 98.07, 98.00, 94.58, 97.44, 97.95, 98.17),
        "emnist": (99.15, 19.44, 48.81, 99.24, 99.27, 98.75, 98.90, 99.27, 99.26),
        "cifar100": (92.67, 2.70, 2.81, 95.00, 94.36, 2.04, 52.11, 94.87, 94.74),
    },
    "table3": {
        "mnist": (86.30, 81.82, 81.46, 91.79, 94.10, 98.50, 85.05, 97.59, 97.36),
        "fmnist": (86.73, 79.50, 78.71, 89.73, 87.51, 40.20, 84.08, 90.97, 91.37),
        "emnist": (61.78, 72.27, 70.55, 78.93, 77.31, 77.98, 59.07, 81.22, 81.47),
        "cifar100": (39.99, 35.21, 37.31, 49.00, 50.24, 21.29, 16.45, 53.04, 53.27),
    },
}
# Which run holds a method's scores, and under which of its models.
HELD = {"fedavg": ("fedavg", "received"), "fedavg-ft": ("fedavg", "own")}
HELD |= {"fedprox": ("fedprox", "received"), "fedprox-ft": ("fedprox", "own")}


def read(table: str, label: str) -> dict[str, Any] | None:
    """Return the result of a cell, or None where it was not run."""
    path = RESULTS / table / f"{label}.json"
    return json.loads(path.read_text()) if path.exists() else None


def runs(table: str, method: str) -> list[dict[str, Any]]:
    """Return a method's scores in a table, one for each seed that was run."""
    run, entry = HELD.get(method, (method, "own"))
    found = (read(table, f"{run}-seed{seed}") for seed in SEEDS)
    return [{**one[entry], "stopped": one["stopped"]} for one in found if one is not None]


def score(told: Sequence[dict[str, Any]]) -> str:
    """Return mean and spread of the seeds, in words."""
    if not told:
        return NOT_RUN
    best = [one["best"] for one in told]
    if len(best) == 1:
        return f"{best[0]:.2f}"
    return f"{statistics.mean(best):.2f} ± {statistics.stdev(best):.2f}"


def main_table(kind: str) -> str:
    """Return one of the paper's tables, ours beside the paper's."""
    head = "| method | " + " | ".join(f"{TITLES[data]} | paper" for data in DATA) + " |"
    lines = [head, "|---|" + "---:|" * (2 * len(DATA))]
    for place, (method, name) in enumerate(zip(METHODS, NAMES, strict=True)):
        cells = []
        for data in DATA:
            cells += [score(runs(f"{kind}-{data}", method)), f"{PAPER[kind][data][place]:.2f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def significance(data: str) -> str:
    """Return Wilcoxon's tests of FedAMP and HeurFedAMP over clients, each client's mean over the seeds."""
    means = {method: _client_means(runs(f"table3-{data}", method)) for method in METHODS}
    lines = ["| against | FedAMP: gain, p | HeurFedAMP: gain, p |", "|---|---:|---:|"]
    for method, name in zip(METHODS[:-2], NAMES[:-2], strict=True):
        cells = []
        for ours in METHODS[-2:]:
            mine, theirs = means[ours], means[method]
            if mine is None or theirs is None:
                cells.append(NOT_RUN)
                continue
            gains = [a - b for a, b in zip(mine, theirs, strict=True)]
            p = wilcoxon(mine, theirs).pvalue if any(gains) else 1.0
            cells.append(f"{statistics.mean(gains):+.2f}, {'< 1e-4' if p < 1e-4 else f'{p:.2g}'}")
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _client_means(told: Sequence[dict[str, Any]]) -> list[float] | None:
    return [statistics.mean(values) for values in zip(*(one["per_client"] for one in told), strict=True)] or None


def tuning(data: str) -> str:
    """Return what was tried for each knob, and what validation chose."""
    lines = ["| method | knob | value: validation accuracy | chosen |", "|---|---|---|---:|"]
    for method, (knob, values) in GRIDS.items():
        told = {value: read(f"tune-{data}", f"{method}-{knob}-{value:g}") for value in values}
        scores = {value: one["validation"]["own"] for value, one in told.items() if one is not None}
        words = ", ".join(f"{v:g}: {scores[v]:.2f}" if v in scores else f"{v:g}: {NOT_RUN}" for v in values)
        chosen = f"{max(scores, key=lambda v: scores[v]):g}" if len(scores) == len(values) else "-"
        lines.append(f"| {method} | {knob} | {words} | {chosen} |")
    return "\n".join(lines)


CHANGES = {
    "uniform": "no attention: all others weigh the same (sigma infinite)",
    "equal": "no attention, and no self weight of its own: everyone weighs 1/m",
    "no-oracle": "self weight 1/m instead of the paper's, which knows the groups",
    "sharp": "sharp attention (sigma 1)",
    "start-w": "local training starts at the client's own model, not at its cloud model",
    "gradient": "Eq. 5 as printed (alpha lowered where a self weight would be negative)",
    "own-init": "each client begins at a random model of its own",
}


def ablation() -> str:
    """Return what FedAMP loses or gains by each change."""
    lines = ["| FedAMP | EMNIST | FMNIST |", "|---|---:|---:|"]
    base = [score(runs(f"table3-{data}", "fedamp")) for data in ("emnist", "fmnist")]
    lines.append(f"| as in Table 3 | {base[0]} | {base[1]} |")
    for variant in VARIANTS:
        cells = [score(runs(f"ablation-{data}", variant)) for data in ("emnist", "fmnist")]
        lines.append(f"| {CHANGES[variant]} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def theorems(name: str, value: str) -> str:
    """Return a theorem's curve beside its bound."""
    told = json.loads((RESULTS / "theorems.json").read_text())[name]
    lines = ["| K | seen | bound |", "|---:|---:|---:|"]
    lines += [f"| {line['K']} | {line[value]:.3g} | {line[value + '_bound']:.3g} |" for line in told["lines"]]
    return "\n".join(lines)


def diminishing() -> str:
    """Return in words how far diminishing steps came."""
    told = json.loads((RESULTS / "theorems.json").read_text())
    convex, smooth = told["convex"]["diminishing"], told["smooth"]["diminishing"]
    return (
        f"from round 1 to {convex[-1]['k']}, H - H\\* of the first problem falls from {convex[0]['gap']:.3g} to "
        f"{convex[-1]['gap']:.2g}, and the squared gradient of the second from {smooth[0]['gradient']:.3g} to "
        f"{smooth[-1]['gradient']:.2g}"
    )


def surroundings() -> str:
    """Return on what all of it was run."""
    found: dict[tuple[str, ...], int] = {}
    for path in sorted(RESULTS.glob("*/*.json")):
        told = json.loads(path.read_text())
        key = (told["device"], f"torch {told['torch']}", told["description"]["precision"])
        found[key] = found.get(key, 0) + 1
    return "; ".join(f"{count} runs on {', '.join(key)}" for key, count in found.items()) or "No run yet."


def stopped() -> str:
    """Return which runs ended before their last round, and why."""
    lines = []
    for path in _cells("table"):
        told = json.loads(path.read_text())
        if told["stopped"]:
            lines.append(f"- {path.parent.name}, {path.stem}: {len(told['own']['curve'])} rounds; {told['stopped']}.")
    return "\n".join(lines) or "None yet."


def _cells(kind: str) -> Iterable[Path]:
    return sorted(RESULTS.glob(f"{kind}*/*.json"))


def page() -> str:
    """Return the page's text."""
    text = (Path(__file__).parent / "page.md").read_text(encoding="utf-8")
    return Template(text).substitute(
        table1=main_table("table1"),
        table2=main_table("table2"),
        table3=main_table("table3"),
        **{f"significance_{data}": significance(data) for data in ("emnist", "fmnist", "mnist")},
        **{f"tuning_{data}": tuning(data) for data in ("emnist", "fmnist", "mnist")},
        ablation=ablation(),
        theorem1=theorems("convex", "gap"),
        theorem2=theorems("smooth", "gradient"),
        surroundings=surroundings(),
        stopped=stopped(),
        diminishing=diminishing(),
        patience=PATIENCE,
    )


def main() -> None:
    """Write the page, and the figures where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", action="store_true", help="draw the figures too")
    asked = parser.parse_args()
    PAGE.write_text(page(), encoding="utf-8")
    if asked.figures:
        import figures

        figures.draw_all()


if __name__ == "__main__":
    main()
