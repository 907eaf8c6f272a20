"""TensorBoard: event files in the run's folder; `tensorboard --logdir FOLDER` shows all runs below it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
from torch.utils.tensorboard import SummaryWriter

from fedamp.runs.watching.round_line import RoundLine
from fedamp.runs.watching.track.base import Tracked, clients_of, numbers_of


class TensorBoard:
    """Scalars, a histogram over the clients, and the configuration as text."""

    def __init__(self, about: Tracked) -> None:
        self.about = about
        self.writer: SummaryWriter | None = None

    def round(self, line: RoundLine) -> None:
        """Log a round; what an interrupted run had logged of it and of later ones is given up."""
        writer = self._writer(line.round)
        for name, value in numbers_of(line).items():
            writer.add_scalar(name, value, line.round)
        scores = np.array([value for value in clients_of(line).values() if np.isfinite(value)])
        if len(scores):
            writer.add_histogram(f"clients/{line.metric}", scores, line.round)

    def end(self, summary: Mapping[str, float]) -> None:
        """Log the summary, and the configuration beside it."""
        writer = self._writer()
        told = json.dumps(dict(self.about.config), indent=1)
        writer.add_text("config", "    " + told.replace("\n", "\n    "))  # four spaces: as it is
        for name, value in summary.items():
            writer.add_scalar(f"summary/{name}", value)

    def close(self) -> None:
        """Write what is still held."""
        if self.writer is not None:
            self.writer.close()

    def _writer(self, k: int | None = None) -> SummaryWriter:
        """Return what writes; from round k on, if there is one, it hides what was written before."""
        if self.writer is None:
            self.writer = SummaryWriter(str(self.about.folder / "tensorboard"), purge_step=k)
        return self.writer


def start(about: Tracked) -> TensorBoard:
    """Begin to log a run, or go on with it."""
    return TensorBoard(about)
