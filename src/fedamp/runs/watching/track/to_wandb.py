"""Weights & Biases: as wandb is set up (`wandb login`, WANDB_MODE=offline); its files are in the run's folder."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Mapping
from typing import Any

import wandb

from fedamp.runs.watching.round_line import RoundLine
from fedamp.runs.watching.track.base import Tracked, clients_of, numbers_of

PROJECT = "fedamp"


class WeightsAndBiases:
    """Numbers by round with a histogram over the clients, and the configuration."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def round(self, line: RoundLine) -> None:
        """Log a round; wandb itself passes over one that it has already."""
        scores = [value for value in clients_of(line).values() if math.isfinite(value)]
        clients = {f"clients/{line.metric}": wandb.Histogram(scores)} if scores else {}
        self.run.log({**numbers_of(line), **clients}, step=line.round)

    def end(self, summary: Mapping[str, float]) -> None:
        """Log the summary."""
        self.run.summary.update(dict(summary))

    def close(self) -> None:
        """Let it send what it still holds."""
        self.run.finish()


def start(about: Tracked) -> WeightsAndBiases:
    """Begin to log a run, or go on with it."""
    known = about.known_as("wandb") or uuid.uuid4().hex[:8]
    config = dict(about.config)
    project = os.environ.get("WANDB_PROJECT") or PROJECT
    run = wandb.init(project=project, name=about.name, id=known, resume="allow", dir=str(about.folder), config=config)
    about.remember("wandb", known)
    return WeightsAndBiases(run)
