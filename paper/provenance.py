"""What the page says of its results besides the scores: where they were run, and which runs ended early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paper import results
from paper.experiments import NAMES
from paper.outcomes import TITLES


def where(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return on which devices, with which torch and in which precision these results were made; "" for none."""
    counts: dict[tuple[str, ...], int] = {}
    for result in runs:
        key = (result["device"], f"torch {result['torch']}", result["description"]["precision"])
        counts[key] = counts.get(key, 0) + 1
    return "; ".join(f"{count} {'run' if count == 1 else 'runs'} on {', '.join(key)}" for key, count in counts.items())


def surroundings() -> str:
    """Return where the runs of the paper's tables were made."""
    return where(result for table, _, result in results.read_all() if table in NAMES) or "No run yet"


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
    """Return both by the names that page.md has for them."""
    return {"surroundings": surroundings(), "stopped": stopped()}
