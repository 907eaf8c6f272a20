"""AutoAMP, with nothing tuned, against the best of the methods that were: a line for each setting."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import t as students_t

from paper import results
from paper.experiments import CHOICE_SEED
from paper.outcomes import NOT_RUN, ROWS, TITLES, Row, Scores, row_named, score, scores_of
from paper.plans import AUTO_ROUNDS
from paper.published import SETTING

OTHERS = [row for row in ROWS if row.run in ("separate", "fedavg", "fedprox", "fedamp", "heurfedamp")]
SETTINGS = [
    *((kind, data) for kind in ("table3", "table2", "table1") for data in ("mnist", "fmnist", "emnist")),
    ("table3", "cifar100"),
]


def automatic() -> str:
    """Return the table: what AutoAMP reaches, what the best other method reaches, and the difference over clients."""
    lines = [
        f"| setting | AutoAMP, w | AutoAMP, u | best other in {AUTO_ROUNDS} rounds | best other in up to 90 | "
        "AutoAMP minus the latter, 95 % |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for kind, data in SETTINGS:
        table = f"{kind}-{data}"
        ours = {entry: scores_of(table, row_named(f"AutoAMP, {letter}")) for entry, letter in LETTERS.items()}
        counts = counted(data, SETTING[kind])
        cells = [f"**{score(ours[entry])}**" if entry == counts else score(ours[entry]) for entry in LETTERS]
        cells += _against(table, ours[counts])
        lines.append(f"| {TITLES[data]}, {SETTING[kind]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


LETTERS = {"own": "w", "received": "u"}


def counted(data: str, setting: str) -> str:
    """Return which of AutoAMP's models counts: what validation chose in a run of its own, else u, as without one."""
    run = results.read(f"auto-{data}", f"{setting}-seed{CHOICE_SEED}")
    held: Mapping[str, float] = {} if run is None else run["validation"]
    return max(held, key=lambda entry: held[entry]) if held else "received"


def _against(table: str, ours: Scores) -> list[str]:
    """Return the best other method in as many rounds, the best one at all, and what AutoAMP gains over the latter."""
    found = {row: _common(scores_of(table, row), ours) for row in OTHERS}
    found = {row: scores for row, scores in found.items() if scores}
    if not found:
        return [NOT_RUN] * 3
    brief = {row: _mean(max(one["curve"][:AUTO_ROUNDS]) for one in scores.values()) for row, scores in found.items()}
    whole = {row: _mean(one["best"] for one in scores.values()) for row, scores in found.items()}
    first, best = _highest(brief), _highest(whole)
    return [f"{brief[first]:.2f} ({first.name})", f"{whole[best]:.2f} ({best.name})", difference(ours, found[best])]


def _common(theirs: Scores, ours: Scores) -> dict[int, Mapping[str, Any]]:
    return {seed: one for seed, one in theirs.items() if seed in ours}


def _mean(values: Any) -> float:
    return statistics.mean(values)


def _highest(means: Mapping[Row, float]) -> Row:
    return max(means, key=lambda row: means[row])


def difference(ours: Scores, theirs: Scores) -> str:
    """Return the mean difference over the clients in points, with its 95 % interval (Student's t)."""
    seeds = [seed for seed in ours if seed in theirs]
    gains = np.mean([np.subtract(ours[seed]["per_client"], theirs[seed]["per_client"]) for seed in seeds], axis=0)
    half = students_t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / len(gains) ** 0.5
    few = f" ({len(seeds)})" if len(seeds) < 3 else ""
    return f"{gains.mean():+.2f} ± {half:.2f}{few}"
