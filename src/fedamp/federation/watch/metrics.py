"""The same numbers for Prometheus, in its text format.

A federation's server: round, rounds, silos by state, accuracy (or RMSE) by silo, seconds of a round, refused replies,
the moment of the last round. A silo: its own rounds, scores and refusals alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedamp.federation.moments import seconds_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

STATES = ("in", "here", "away", "missing", "refuses", "out", "not let in", "set aside", "removed", "never came")
"""States that are always counted, so that a series does not end when nobody is in it."""


def server_metrics(overview: Mapping[str, Any]) -> bytes:
    """Return what Prometheus may know about a federation, from its overview."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    found = list(_common(overview, "the federation's server"))
    if "silos" in overview:
        states = Counter({**dict.fromkeys(STATES, 0), **Counter(silo["state"] for silo in overview["silos"])})
        silos = GaugeMetricFamily("fedamp_silos", "Silos by state.", labels=["state"])
        for state, number in states.items():
            silos.add_metric([state], number)
        metric = _gauge(overview["metric"])
        scores = GaugeMetricFamily(f"fedamp_{metric}", f"Test {metric} of each silo's model.", labels=["silo"])
        for silo in overview["silos"]:
            if silo["score"] is not None:
                scores.add_metric([silo["name"]], silo["score"])
        refused = CounterMetricFamily("fedamp_refused_replies", "Replies that did not pass the checks.")
        refused.add_metric([], overview["refused_replies"])
        found += [silos, scores, refused]
    return _text(found)


def silo_metrics(overview: Mapping[str, Any]) -> bytes:
    """Return what Prometheus may know about one silo, from its overview."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    found = list(_common(overview, "this silo"))
    if "scores" in overview:
        connected = GaugeMetricFamily("fedamp_connected", "Whether this silo is connected to the server.")
        connected.add_metric([], overview["connection"] == "connected")
        metric = _gauge(overview["metric"])
        scores = GaugeMetricFamily(f"fedamp_{metric}", f"Test {metric} of this silo's models.", labels=["model"])
        for entry, score in overview["scores"].items():
            if score["test"] is not None:
                scores.add_metric([entry], score["test"])
        refusals = CounterMetricFamily("fedamp_refusals", "Times that this silo did not take part.")
        refusals.add_metric([], overview["refused"])
        found += [connected, scores, refusals]
    return _text(found)


def _gauge(metric: str) -> str:
    """Return a metric's name as Prometheus takes it."""
    return re.sub(r"[^a-z0-9]+", "_", metric.lower())


def _common(overview: Mapping[str, Any], what: str) -> Iterable[Metric]:
    """Yield what both sides have; a folder that can't be read is down."""
    from prometheus_client.core import GaugeMetricFamily

    values = {
        "fedamp_up": (f"Whether {what} is running.", float(bool(overview.get("up")))),
        "fedamp_round": ("Rounds played so far.", overview.get("round")),
        "fedamp_rounds": ("Rounds to play.", overview.get("rounds")),
        "fedamp_round_seconds": ("Seconds of a round, median of the last ones.", overview.get("round_seconds")),
        "fedamp_last_round_timestamp_seconds": (
            "When the last round ended.",
            seconds_of(overview.get("last_round")),
        ),
    }
    for name, (help_text, value) in values.items():
        if value is not None:
            yield GaugeMetricFamily(name, help_text, value=value)


def _text(found: Iterable[Metric]) -> bytes:
    from prometheus_client import CollectorRegistry, generate_latest

    class Found:
        def collect(self) -> Iterable[Metric]:
            return found

    registry = CollectorRegistry()
    registry.register(Found())
    return bytes(generate_latest(registry))
