"""What a tracker is told, and what it does with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedamp.config.metrics import OWN, info
from fedamp.files import read_json, write_json
from fedamp.runs.watching.round_line import RoundLine

IDS = "track.json"
"""In a run's folder: what each tracker calls this run, so that a resumed one goes on there."""


@dataclass(frozen=True)
class Tracked:
    """The run that is tracked."""

    name: str
    folder: Path
    store: Path  # where a tracker keeps what several runs share
    config: Mapping[str, Any]  # flat, with dotted names

    def known_as(self, tracker: str) -> str | None:
        """Return what this tracker calls the run, if it has been tracked before."""
        return (read_json(self.folder / IDS) or {}).get(tracker)

    def remember(self, tracker: str, number: str) -> None:
        """Write down what this tracker calls the run."""
        write_json(self.folder / IDS, {**(read_json(self.folder / IDS) or {}), tracker: number})


class Tracker(Protocol):
    """An observer that shows a run elsewhere."""

    def round(self, line: RoundLine) -> None:
        """Log a round."""

    def end(self, summary: Mapping[str, float]) -> None:
        """Log what came of the run."""

    def close(self) -> None:
        """Write what is still held."""


def numbers_of(line: RoundLine) -> dict[str, float]:
    """Return the numbers of a round that are known, by the names that all trackers have for them."""
    metric = _plain(line.metric)
    found = {f"mean_{metric}": line.mean, f"worst_{metric}": line.worst, "train_loss": line.loss}
    return {name: value for name, value in {**found, "seconds": line.seconds}.items() if value is not None}


def clients_of(line: RoundLine) -> dict[str, float]:
    """Return the score of each client that was scored in a round, by its name if trackers can have it, or number."""
    scores = enumerate(line.per_client)
    return {f"{_plain(line.metric)}/{_series(line.names, i)}": value for i, value in scores if value is not None}


def _plain(metric: str) -> str:
    """Return a metric's name with signs that every tracker takes; of a user's own without its direction and unit."""
    name = info(metric).words if metric.startswith(f"{OWN}:") else metric
    return "".join(c if c.isascii() else "_" for c in name)


def _series(names: Sequence[str] | None, i: int) -> str:
    plain = names is not None and all((c.isascii() and c.isalnum()) or c in "-_. " for c in names[i])
    return names[i] if names is not None and plain else f"client_{i}"
