"""What a run writes down while it is under way: a line for each round, in memory and, if it has one, in its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fedamp.config import RunConfig
from fedamp.data.silos.schema_file import schema_to_json
from fedamp.methods.base import SPECTRUM
from fedamp.records.checkpoints import Checkpoint, Pace
from fedamp.records.folder import RunFolder
from fedamp.records.summaries import finite, spread
from fedamp.runs.round import Round
from fedamp.runs.setup import Setup

Line = dict[str, Any]


@dataclass(frozen=True)
class Journal:
    """The lines so far, and the folder that they are written to as they come."""

    lines: list[Line]
    folder: RunFolder | None  # None: nothing is written here
    path: Path | None = None  # of the folder, in whichever process writes to it
    pace: Pace = field(default_factory=Pace)

    @classmethod
    def begin(cls, config: RunConfig, setup: Setup, folder: RunFolder | None) -> tuple[Journal, Checkpoint | None]:
        """Return the journal of a run, and the checkpoint to continue from if it was interrupted in this folder."""
        if folder is None:
            return cls([], None), None
        schema = None if setup.schema is None else schema_to_json(setup.schema)
        shard, store = setup.shard, setup.store

        def begin() -> tuple[Checkpoint | None, list[Line]]:
            saved = folder.begin(config.to_dict(), schema, store.device, store.home)
            return (None, []) if saved is None else (shard.travelling(saved), folder.lines())

        saved, lines = shard.from_leader("the checkpoint", begin)
        here = folder if shard.leads else None  # one process writes
        arrived = saved if saved is None or shard.team is None else saved.to(store.home)
        return cls(lines, here, folder.path), arrived

    def add(self, line: Line) -> Line:
        """Write a line down, and return it."""
        self.lines.append(line)
        if self.folder is not None:
            self.folder.add(line)
        return line

    def forget_after(self, k: int) -> None:
        """Take back the line of a round that was scored and then interrupted: its models are not kept."""
        if self.lines[-1]["round"] > k:
            self.lines[:] = [line for line in self.lines if line["round"] <= k]
            if self.folder is not None:
                self.folder.rewrite(self.lines)

    def due(self) -> bool:
        """Return whether enough time has passed since the last checkpoint."""
        return self.folder is not None and self.pace.due()

    def save(self, checkpoint: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint; of several processes all make it together, and one writes it."""
        with self.pace.timed():
            made = checkpoint()
            if self.folder is not None:
                self.folder.save(made)


def round_line(k: int, played: Round, events: list[str], scores: Line, seconds: float) -> Line:
    """Return what is written down about a round."""
    who = played.present.nonzero()[:, 0].tolist()
    line: Line = {"round": k, "present": played.present.tolist()}
    if played.refused:
        line["refused"] = {str(client): why for client, why in played.refused.items()}
    for name, loss in played.losses.items():
        line["train_loss" + (f"_{name}" if name else "")] = spread(loss.tolist(), who, len(played.present))
    for name, value in played.diagnostics.items():
        if isinstance(value, Tensor) and value.ndim == 1:
            line[name] = finite(value.tolist())
        elif isinstance(value, float) or name == SPECTRUM:
            line[name] = finite(value)
    events = [*played.diagnostics["events"], *events]
    return {**line, "events": events, "bytes": played.num_bytes, **scores, "seconds": seconds}


def unplayed_line(k: int, scores: Line) -> Line:
    """Return what is written down about models that no round was played with: the first, and the last ones sent."""
    return {"round": k, "events": [], "seconds": 0.0, **scores}
