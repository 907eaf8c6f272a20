"""The server's live page: who is here, how far it is, and the report's plots of the rounds so far."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedamp.config.metrics import info
from fedamp.federation.plan_files import read_federation
from fedamp.federation.processes.logs import tail
from fedamp.federation.server.overview import Seen, overview, played, see
from fedamp.federation.server.place import place_of
from fedamp.federation.server.silo_states import PRESENT
from fedamp.federation.watch.metrics import server_metrics
from fedamp.federation.watch.page import Look, View
from fedamp.federation.watch.words import duration, score_text, series
from fedamp.records.facts import WITHHELD
from fedamp.report.run_scores import Trial, client_names
from fedamp.report.weights import weights_of, xi_of
from fedamp.report.who_helps import part_of, read_helping

XI_BYTES = 40_000
"""Bytes of collaboration weights that are sent at a time; if there are more, rounds are left out."""
ABSENCES, LINES_SHOWN = 12, 20


def view(folder: Path) -> View:
    """Return what the operator of a federation sees."""
    places = [folder / "federation.json", folder / "record"]
    return View(
        "server",
        read_federation(folder).plan.name,
        lambda: look(folder),
        places,
        place_of(folder).lock,
        server_metrics,
    )


def look(folder: Path) -> Look:
    """Read a federation's files, and return what its page shows."""
    seen = see(folder)
    found = overview(seen)
    helps = None
    if seen.trial is not None and (helping := read_helping(seen.trial)) is not None:
        helps = part_of("", helping, client_names(seen.trial))
    here = sum(silo["state"] in PRESENT for silo in found["silos"])
    values = {
        "lead": _lead(found, here),
        "terms": _terms(seen, found),
        "score": score_text,
        "withheld": WITHHELD,
        "absences": _absences(played(seen.run)),
        "helps": helps,
        "log": tail(folder / "record" / "log.txt", LINES_SHOWN),
    }
    return Look(found, values, _plots(seen.trial, helps))


def _lead(found: Mapping[str, Any], here: int) -> str:
    """Return in a sentence or two how the federation is doing."""
    members = [silo for silo in found["silos"] if silo["state"] != "removed"]
    silos = f"{here} of {len(members)} silos are here."
    if not found["up"] and found["state"] != "finished":
        return f"The federation is not running: {found['round']} of {found['rounds']} rounds have been played."
    if found["state"] == "finished":
        return f"All {found['rounds']} rounds have been played."
    if found["state"] == "not begun":
        return "The server is starting."
    if found["state"] == "waiting":
        return f"Waiting for silos: {silos} {found['min_silos']} are needed to continue.{_out(members)}"
    if found["state"] == "paused":
        return f"Paused: {found['min_silos']} silos are needed, and fewer can still train.{_out(members)}"
    left = "" if found["seconds_left"] is None else f"; about {duration(found['seconds_left'])} left"
    return f"Round {found['round'] + 1} of {found['rounds']} is under way{left}. {silos}{_out(members)}"


def _out(silos: Sequence[Mapping[str, Any]]) -> str:
    """Return in a sentence which silos train no more, and why; "" if none."""
    out = [f"{silo['name']} ({silo['reason']})" for silo in silos if silo["state"] == "out"]
    return f" No round waits for {', '.join(out)}." if out else ""


def _terms(seen: Seen, found: Mapping[str, Any]) -> dict[str, str]:
    metric = found["metric"]
    words = metric if metric in ("accuracy", "rmse") else info(metric).words
    worst = "" if found["worst"] is None else f"{score_text(found['worst'], metric)} ({found['worst_silo']})"
    pace = found["round_seconds"]
    terms = {
        "rounds played": f"{found['round']} of {found['rounds']}",
        "time of a round": "" if pace is None else f"{pace:.1f} s, median of the last ones",
        f"mean {words}": "" if found["mean"] is None else score_text(found["mean"], metric),
        f"worst {words}": worst,
        "refused replies": str(found["refused_replies"]),
        "method": found["method"],
        "model": seen.federation.plan.config.model.name,
        "silos needed for a round": str(found["min_silos"]),
    }
    return {term: value for term, value in terms.items() if value}


def _absences(lines: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, str]]:
    """Return who was not in a round although it was asked, and why: the last ones first."""
    found = [(line["round"], name, why) for line in lines for name, why in line.get("absent", {}).items()]
    return found[::-1][:ABSENCES]


def _plots(trial: Trial | None, helps: Any) -> dict[str, Any]:
    if trial is None:
        return {}
    names, scores = client_names(trial), trial.scores
    rounds = np.arange(1, len(scores) + 1)
    curves = [series("mean", rounds, trial.means)]
    curves += [series(name, rounds, scores[:, place]) for place, name in enumerate(names)]
    xi = xi_of(trial)
    return {
        "curves": {
            "metric": info(trial.metric).label,
            "lines": curves,
        },
        "xi": None if xi is None else weights_of(trial, xi, XI_BYTES),
        "spectrum": None if helps is None else json.loads(helps.spectrum),
        "gains": None if helps is None else json.loads(helps.clients),
    }
