"""Many clients in parts that fit the memory: a part that does not is halved, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedamp.errors import UserError

ALL_AT_ONCE = 1 << 30
"""More clients than there are."""


@dataclass
class Chunks:
    """How many clients are taken at once; halved for good if memory runs out."""

    size: int = ALL_AT_ONCE

    def over(self, num_clients: int, work: Callable[[slice], None], free: Callable[[], None]) -> list[str]:
        """Do the work for all clients, one slice after another, and return messages for the user.

        The work must leave no trace of a slice that it did not finish; `free` gives back what memory it can.
        """
        begin, events = 0, []
        while begin < num_clients:
            part = slice(begin, min(begin + self.size, num_clients))
            if self._fits(work, part):
                begin = part.stop
            else:
                free()
                events.append(self._halve(part.stop - part.start))
        return events

    @staticmethod
    def _fits(work: Callable[[slice], None], part: slice) -> bool:
        try:
            work(part)
        except torch.OutOfMemoryError:
            if part.stop - part.start == 1:
                raise UserError(
                    "one client's training alone does not fit into the device's memory; lower batch_size, use "
                    "precision bf16, or train on the CPU"
                ) from None
            return False  # handled when this frame, and all that it kept alive, is gone
        return True

    def _halve(self, tried: int) -> str:
        self.size = tried // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return (
            f"{tried} clients at once did not fit into the device's memory; from now on they are taken {self.size} at "
            "a time. This costs time, and nothing else"
        )
