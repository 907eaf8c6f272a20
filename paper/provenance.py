"""What the page says of its results besides the scores: where they were run, and which runs ended early."""

from __future__ import annotations

from collections.abc import Collection

from paper import results
from paper.experiments import NAMES
from paper.outcomes import TITLES


def surroundings(tables: Collection[str] = NAMES) -> str:
    """Return on which devices, with which torch and in which precision the runs of these tables were made."""
    counts: dict[tuple[str, ...], int] = {}
    for table, _, result in results.read_all():
        if table not in tables:
            continue
        key = (result["device"], f"torch {result['torch']}", result["description"]["precision"])
        counts[key] = counts.get(key, 0) + 1
    lines = (f"{count} {'run' if count == 1 else 'runs'} on {', '.join(key)}" for key, count in counts.items())
    return "; ".join(lines) or "No run yet"


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
