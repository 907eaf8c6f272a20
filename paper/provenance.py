"""What the page says of its results besides the scores: where they were run, and which runs ended early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paper import results
from paper.experiments import NAMES
from paper.markdown import listed
from paper.outcomes import OUT_OF_TIME, TITLES, titled
from paper.published import SETTING


def precision(result: Mapping[str, Any]) -> str:
    """Return the precision that a run had.

    A result that does not say is older than bf16 as what `auto` may mean on a GPU: there it meant TF32.
    """
    asked: str = result.get("precision") or result["description"]["precision"]
    return asked if asked != "auto" else "fp32" if result["device"].startswith("CPU") else "tf32"


def where(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return on which devices, with which torch and in which precision these results were made; "" for none."""
    counts: dict[tuple[str, ...], int] = {}
    for result in runs:
        key = (result["device"], f"torch {result['torch']}", precision(result))
        counts[key] = counts.get(key, 0) + 1
    return "; ".join(f"{count} {'run' if count == 1 else 'runs'} on {', '.join(key)}" for key, count in counts.items())


def surroundings() -> str:
    """Return where the runs of the paper's tables were made."""
    return where(result for table, _, result in results.read_all() if table in NAMES) or "No run yet"


def others() -> str:
    """Return which runs of the paper's tables were not made as most of them were, by device and precision."""
    runs = [(table, label, result) for table, label, result in results.read_all() if table in NAMES]
    kinds = [(result["device"], precision(result)) for _, _, result in runs]
    usual = max(kinds, key=kinds.count, default=None)
    apart: dict[tuple[str, str], dict[str, list[str]]] = {}
    for (table, label, _), kind in zip(runs, kinds, strict=True):
        if kind != usual:
            apart.setdefault(kind, {}).setdefault(table, []).append(label)
    return "; ".join(
        f"{device} in {how}: " + ", ".join(f"{table} ({', '.join(labels)})" for table, labels in tables.items())
        for (device, how), tables in apart.items()
    )


def out_of_time() -> str:
    """Return which runs ended because the time for them was over."""
    runs = (each for each in results.read_all() if each[0] in NAMES and each[2]["stopped"] == OUT_OF_TIME)
    return listed([f"{_place(table)} {label} (round {len(result['own']['curve'])})" for table, label, result in runs])


def _place(table: str) -> str:
    kind, _, data = table.partition("-")
    return titled((kind, data)) if kind in SETTING else table


def stopped() -> str:
    """Return which runs ended before their last round, and why."""
    reasons: dict[str, list[str]] = {}
    for table, label, result in results.read_all():
        if result["stopped"] and table in NAMES:
            kind, _, data = table.partition("-")
            where = TITLES[data] if kind == "table3" else table
            reasons.setdefault(result["stopped"], []).append(f"{where} {label} ({len(result['own']['curve'])})")
    return "\n".join(f"- {why}: {', '.join(names)}." for why, names in reasons.items()) or "None."


def provenance() -> dict[str, str]:
    """Return all of it by the names that page.md has."""
    return {
        "surroundings": surroundings(),
        "made_otherwise": others() or "none",
        "stopped": stopped(),
        "out_of_time": out_of_time() or "nobody",
    }
