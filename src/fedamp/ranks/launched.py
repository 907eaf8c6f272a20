"""What `torchrun` tells a process: which of how many it is. Read from the environment; torch is not loaded for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from fedamp.errors import UserError

PATIENCE = 1800.0
"""Seconds that a process waits for the others, unless FEDAMP_RANK_TIMEOUT says otherwise. They differ by what one has
to train in a round, and by what the leader writes and reads."""

FROM_PYTHON = "fedamp.run and fedamp.compare"
"""What a script that torchrun has started can call: all processes do it together."""

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class SharedError(UserError):
    """A mistake that every process finds by itself: the leader's word is enough."""


@dataclass(frozen=True)
class Launched:
    """This process among those that were started together."""

    rank: int  # from 0; the leader is 0
    size: int  # 2 or more
    local_rank: int  # among those on this machine
    local_size: int

    @property
    def words(self) -> str:
        """What it is called in a message: "process 1 of 4", counted from 0 as torchrun does."""
        return f"process {self.rank} of {self.size}"


@cache
def launched() -> Launched | None:
    """Return which process this is, or None if it was started alone."""
    there = [name for name in NEEDED if name in os.environ]
    if len(there) < len(NEEDED) or _number("WORLD_SIZE") < 2:
        return None
    local = {name: _number(name) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE") if name in os.environ}
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if not 0 <= rank < size:
        raise UserError(f"RANK is {rank} and WORLD_SIZE {size}; expected a rank from 0 to {size - 1}: use torchrun")
    return Launched(rank, size, local.get("LOCAL_RANK", rank), local.get("LOCAL_WORLD_SIZE", size))


def is_leader() -> bool:
    """Return whether this process writes and prints: it was started alone, or is the first of several."""
    mine = launched()
    return mine is None or mine.rank == 0


def one_process(what: str, together: str) -> None:
    """Raise if this is one of several processes, which can't do this at once; `together` is what they can do."""
    if launched() is not None:
        raise SharedError(f"{what} is for one process; torchrun is for {together}")


def patience() -> float:
    """Return how many seconds a process waits for the others."""
    text = os.environ.get("FEDAMP_RANK_TIMEOUT", str(PATIENCE))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"FEDAMP_RANK_TIMEOUT is {text!r}; expected a number of seconds above 0")
    return seconds


def threads(local_size: int) -> int | None:
    """Return the threads of one of several processes on this machine: its share of the cores. None: as it was told.

    torchrun sets OMP_NUM_THREADS=1 where nobody has set it, so 1 says nothing; any other number was meant.
    """
    if os.environ.get("OMP_NUM_THREADS", "1") != "1":
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // local_size)


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise UserError(f"{name} is {os.environ[name]!r}; expected a number, as torchrun sets it") from None
