"""Many clients in parts that fit the memory: a part that does not is halved, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass
class Chunks:
    """How many clients are taken at once. Halved for good where memory runs out, which is then told as an event."""

    size: int = 1 << 30
    events: list[str] = field(default_factory=list)

    def over(self, num_clients: int, work: Callable[[slice], None]) -> None:
        """Do the work for all clients, a slice after the other. It must leave no trace of a slice that it did not end."""
        begin = 0
        while begin < num_clients:
            part = slice(begin, min(begin + self.size, num_clients))
            if self._fits(work, part):
                begin = part.stop
            else:
                self._halve(part.stop - part.start)

    @staticmethod
    def _fits(work: Callable[[slice], None], part: slice) -> bool:
        try:
            work(part)
        except torch.OutOfMemoryError:
            if part.stop - part.start == 1:
                raise ValueError(
                    "one client's training alone does not fit into the device's memory; lower batch_size, take "
                    "precision bf16, or train on the CPU"
                ) from None
            return False  # handled when this frame, and all that it kept alive, is gone
        return True

    def _halve(self, tried: int) -> None:
        self.size = tried // 2
        self.events.append(
            f"{tried} clients at once did not fit into the device's memory; from here on it is {self.size} at once. "
            "Nothing is lost but time"
        )
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def take_events(self) -> list[str]:
        """Return what has happened since the last time."""
        told, self.events = self.events, []
        return told
