"""AutoAMP, with nothing tuned, against the best of the methods that were: a line for each setting."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as students_t

from paper import results
from paper.experiments import CHOICE_SEED
from paper.outcomes import CHANCE, NOT_RUN, ROWS, TITLES, Row, Scores, gained, holm, row_named, score, scores_of, titled
from paper.plans import plan_of
from paper.published import SETTING, TWELVE

OTHERS = [row for row in ROWS if row.run in ("separate", "fedavg", "fedprox", "fedamp", "heurfedamp")]


def automatic() -> str:
    """Return the table: what AutoAMP reaches, what the best other method reaches, and the difference over clients."""
    lines = [
        "| setting | AutoAMP, w | AutoAMP, u | best other in as many rounds | best other | "
        "AutoAMP minus the latter, 95 % |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for kind, data in TWELVE:
        table = f"{kind}-{data}"
        ours = {entry: scores_of(table, row_named(f"AutoAMP, {letter}")) for entry, letter in LETTERS.items()}
        counts = counted(data, SETTING[kind])
        cells = [f"**{score(ours[entry])}**" if entry == counts else score(ours[entry]) for entry in LETTERS]
        cells += _against(table, ours[counts], plan_of(data).auto_rounds)
        lines.append(f"| {TITLES[data]}, {SETTING[kind]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Standing:
    """Where AutoAMP leads, is not told apart or is behind: settings with the gain over the best other method."""

    leads: list[str]
    level: list[str]
    behind: list[str]


def standing() -> Standing:
    """Return where AutoAMP stands, by Wilcoxon's test over clients, with Holm's correction over the settings."""
    gains = {}
    for kind, data in TWELVE:
        ours = taken_home(f"{kind}-{data}")
        found = _others(f"{kind}-{data}", ours)
        gain = gained(ours, found[_highest(_means(found))]) if found else None
        if gain is not None:
            gains[kind, data] = gain
    corrected = holm([1.0 if gain.p is None else gain.p for gain in gains.values()])
    found = Standing([], [], [])
    for (setting, gain), p in zip(gains.items(), corrected, strict=True):
        side = found.level if p >= CHANCE else found.leads if gain.points > 0 else found.behind
        side.append(f"{titled(setting)} {gain.points:+.2f}")
    return found


def taken_home(table: str) -> Scores:
    """Return the scores of the model of AutoAMP's that counts."""
    kind, _, data = table.partition("-")
    return scores_of(table, row_named(f"AutoAMP, {LETTERS[counted(data, SETTING[kind])]}"))


LETTERS = {"own": "w", "received": "u"}


def counted(data: str, setting: str) -> str:
    """Return which of AutoAMP's models counts: what validation chose in a run of its own, else u, as without one."""
    run = results.read(f"auto-{data}", f"{setting}-seed{CHOICE_SEED}")
    held: Mapping[str, float] = {} if run is None else run["validation"]
    return max(held, key=lambda entry: held[entry]) if held else "received"


def _against(table: str, ours: Scores, rounds: int) -> list[str]:
    """Return the best other method in as many rounds, the best one at all, and what AutoAMP gains over the latter."""
    found = _others(table, ours)
    if not found:
        return [NOT_RUN] * 3
    brief = {row: _mean(max(one["curve"][:rounds]) for one in scores.values()) for row, scores in found.items()}
    whole = _means(found)
    first, best = _highest(brief), _highest(whole)
    return [f"{brief[first]:.2f} ({first.name})", f"{whole[best]:.2f} ({best.name})", difference(ours, found[best])]


def _others(table: str, ours: Scores) -> dict[Row, Scores]:
    """Return the other methods' scores for AutoAMP's seeds."""
    found: dict[Row, Scores] = {row: _common(scores_of(table, row), ours) for row in OTHERS}
    return {row: scores for row, scores in found.items() if scores}


def _means(found: Mapping[Row, Scores]) -> dict[Row, float]:
    return {row: _mean(one["best"] for one in scores.values()) for row, scores in found.items()}


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
