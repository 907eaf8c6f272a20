"""A silo's live page: its own rounds, its own scores, its own connection, and nothing about the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedamp.config.metrics import info
from fedamp.federation.plan_files import read_silo_config
from fedamp.federation.processes.logs import tail
from fedamp.federation.silo import diary
from fedamp.federation.silo.overview import RUN, overview
from fedamp.federation.watch.metrics import silo_metrics
from fedamp.federation.watch.page import Look, View
from fedamp.federation.watch.words import duration, score_text, series
from fedamp.records.summaries import in_unit

WORDS = {
    "own": "own model (after local training)",
    "received": "received from the server",
    "between": "midpoint of the two",
    "alone": "trained alone",
    "chosen": "chosen by all silos' held-out samples",
}
LINES_SHOWN, REFUSALS_SHOWN = 20, 12


def view(bundle: Path) -> View:
    """Return what the operator of a silo sees."""
    places = [bundle / "silo.json", bundle / RUN, bundle / RUN / "models"]
    name, lock = read_silo_config(bundle).name, bundle / RUN / "up.lock"
    return View("silo", name, lambda: look(bundle), places, lock, silo_metrics)


def look(bundle: Path) -> Look:
    """Read a bundle's files, and return what its page shows."""
    found = overview(bundle)
    values = {
        "lead": _lead(found),
        "terms": _terms(found),
        "words": WORDS,
        "score": score_text,
        "refusals": found["refusals"][::-1][:REFUSALS_SHOWN],
        "log": tail(bundle / RUN / "log.txt", LINES_SHOWN),
    }
    return Look(found, values, _plots(diary.rounds(bundle / RUN), found["metric"]))


def _lead(found: Mapping[str, Any]) -> str:
    """Return in a sentence or two how the silo is doing."""
    if found["ended"]:
        played = f"The federation has ended after {found['round']} rounds."
    elif found["round"]:
        left = f"; about {duration(found['seconds_left'])} left" if found["up"] and found["seconds_left"] else ""
        of = "" if found["rounds"] is None else f" of {found['rounds']}"
        played = f"The last round that this silo played is {found['round']}{of}{left}."
    else:
        played = "No round has been played yet."
    if found["privacy"] is not None and found["privacy"]["rounds_left"] == 0 and not found["ended"]:
        played += f" Privacy: {found['privacy']['words']}."
    if not found["up"]:
        return f"The silo is not running. {played}"
    if found["connection"] in ("connected", "connecting"):
        return f"The silo is {found['connection']}. {played}"
    reason = f" ({found['connection_reason']})" if found["connection_reason"] else ""
    return f"The silo is not connected: {found['connection']}{reason}. {played}"


def in_words(found: Mapping[str, Any]) -> list[str]:
    """Return a silo's overview as lines of text."""
    lines = [_lead(found), *([f"models are in {found['models_folder']}"] if found["models"] else [])]
    for model in found["models"]:
        scores = f"test {score_text(model['test'], found['metric'])}, round {model['round']}"
        lines.append(f"{WORDS.get(model['name'], model['name'])}: {scores}, {model['file']}")
    if found["privacy"] is not None:
        lines.append(f"privacy: {found['privacy']['words']}; all of it: fedamp silo privacy BUNDLE")
    if found["refusals"]:
        last = found["refusals"][-1]
        lines.append(f"last refusal, {last['time']}: {last['reason']}")
    return lines


def _terms(found: Mapping[str, Any]) -> dict[str, str]:
    names = {"train": "training samples", "test": "test samples", "validation": "validation samples"}
    training = found["train_seconds"]
    terms = {
        "federation": found["federation"],
        "server": found["server"],
        **{names[on]: str(number) for on, number in found["samples"].items() if on in names},
        "local training": "" if training is None else f"{training:.1f} s, median of the last rounds",
        "method": found["method"],
        "privacy": "" if found["privacy"] is None else found["privacy"]["words"],
        "privacy does not cover": "" if found["privacy"] is None else "; ".join(found["privacy"]["not_covered"]),
    }
    return {term: value for term, value in terms.items() if value}


def _plots(lines: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """Return the silo's scores on its test samples; what it received was made by the round before."""
    curves = []
    for entry in WORDS:
        shift = 1 if entry == "received" else 0
        points = [(line["round"] - shift, line["test"][entry]) for line in lines if entry in line.get("test", {})]
        points = [(k, score) for k, score in points if k >= 1]
        if points:
            scores = np.array([np.nan if score is None else score for _, score in points])
            curves.append(series(WORDS[entry], [k for k, _ in points], in_unit(scores, metric)))
    return {"curves": {"metric": info(metric).label, "lines": curves}} if curves else {}
