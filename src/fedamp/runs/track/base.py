"""What a tracker is told, and what it does with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedamp.files import read_json, write_json
from fedamp.runs.round_line import RoundLine

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
    found = {f"mean_{line.metric}": line.mean, f"worst_{line.metric}": line.worst, "train_loss": line.loss}
    return {name: value for name, value in {**found, "seconds": line.seconds}.items() if value is not None}


def clients_of(line: RoundLine) -> dict[str, float]:
    """Return the score of each client that was scored in a round."""
    scores = enumerate(line.per_client)
    return {f"{line.metric}/client_{i}": value for i, value in scores if value is not None}
