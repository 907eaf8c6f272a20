"""Which clients of a run are with this process, if several play it together; and what each tells the others.

Local training and scoring, where nearly all time goes, are done where a client is, and its state stays there. The
server's half is the same in every process, from the same replies. Alone, all clients are here and nothing is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fedamp.ranks.blocks import together
from fedamp.ranks.launched import SharedError
from fedamp.ranks.team import Team
from fedamp.records.checkpoints import Checkpoint
from fedamp.rows import Message, Rows, State

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Shard:
    """The clients of this process: neighbours, so that what all processes give is in the clients' order."""

    team: Team | None = None
    bounds: tuple[int, ...] = ()  # the clients of rank r are those from bounds[r] to bounds[r + 1]
    device: torch.device | str = "cpu"

    @classmethod
    def of(cls, team: Team | None, work: Sequence[int], device: torch.device) -> Shard:
        """Return who is with whom, given how much work each client is."""
        if team is None:
            return ONE_PROCESS
        if team.size > len(work):
            raise SharedError(
                f"there are {team.size} processes for {len(work)} clients; expected a client for each: start at most "
                f"{len(work)} (torchrun --nproc-per-node, --nnodes)"
            )
        return cls(team, cuts(work, team.size), device)

    @property
    def processes(self) -> int:
        """How many processes play the run."""
        return 1 if self.team is None else self.team.size

    @property
    def rank(self) -> int:
        """Which of them this is, from 0."""
        return 0 if self.team is None else self.team.rank

    @property
    def leads(self) -> bool:
        """Whether this process writes and shows."""
        return self.rank == 0

    @property
    def mine(self) -> slice:
        """Where this process's clients are among all."""
        return slice(None) if self.team is None else slice(*self.bounds[self.team.rank : self.team.rank + 2])

    def positions(self, places: Tensor) -> Tensor:
        """Return the positions among all clients of some that are given by those among this process's own."""
        return places if self.team is None else places + self.mine.start

    def here(self, who: Tensor) -> Tensor:
        """Return which of these clients, by their positions among all, are with this process, as a mask."""
        return who >= 0 if self.team is None else (who >= self.mine.start) & (who < self.mine.stop)

    def places(self, who: Tensor) -> Tensor:
        """Return the positions of clients of this process among its own, from those among all."""
        return who if self.team is None else who - self.mine.start

    def rows(self, rows: Rows) -> Rows:
        """Return the rows of this process's clients, of all clients' rows."""
        return rows if self.team is None else rows[self.mine]

    def message(self, message: Message) -> Message:
        """Return what is for this process's clients."""
        return {name: self.rows(rows) for name, rows in message.items()}

    def state(self, state: State) -> State:
        """Return what this process's clients remember, of what all do."""
        if self.team is None:
            return state
        return State(self.mine.stop - self.mine.start, self.message(state.rows), state.pairs, state.shared)

    def all_rows(self, rows: Mapping[str, Rows]) -> dict[str, Rows]:
        """Return all clients' rows, given those of this process's clients; it may have none of them, and no names."""
        return self.all_told(rows, None)[0]

    def all_told(self, rows: Mapping[str, Rows], mine: T) -> tuple[dict[str, Rows], list[T]]:
        """Return all clients' rows, and what every process has to tell besides."""
        if self.team is None:
            return dict(rows), [mine]
        given = {name: (one.params[:0].cpu(), one.buffers[:0].cpu()) for name, one in rows.items()}
        told = self.team.exchange("rows", ({name: len(one) for name, one in rows.items()}, given, mine))
        found = [(heights, forms) for heights, forms, _ in told]
        forms: dict[str, tuple[Tensor, Tensor]] = next((forms for _, forms in found if forms), {})
        whole = {}
        for name, empty in forms.items():
            counts = [heights.get(name, 0) for heights, _ in found]
            one = rows[name] if name in rows else Rows(*empty).to(self.device)
            parts = (one.params, one.buffers)
            whole[name] = Rows(*(self.team.stack(f"the rows {name!r}", part, counts) for part in parts))
        return whole, [each for _, _, each in told]

    def all_state(self, state: State) -> State:
        """Return what all clients remember."""
        if self.team is None:
            return state
        return State(self.bounds[-1], self.all_rows(state.rows), state.pairs, state.shared)

    def told(self, purpose: str, mine: T) -> list[T]:
        """Return what every process has to tell, in the clients' order."""
        return [mine] if self.team is None else self.team.exchange(purpose, mine)

    def told_once(self, purpose: str, mine: list[str]) -> list[str]:
        """Return what this process has to tell, if it leads, and after it what only others have to tell."""
        first, *others = self.told(purpose, mine)
        return [*first, *dict.fromkeys(text for each in others for text in each if text not in first)]

    def each(self, things: Sequence[T], work: Callable[[T], U]) -> list[U]:
        """Return what becomes of each thing, in order: of several processes one works at it, and tells the others.

        All tell what they have after one thing each: nobody has to wait longer than that, nor for Ctrl-C to be heard.
        """
        found: list[U] = []
        for first in range(0, len(things), self.processes):
            mine = [work(thing) for thing in things[first + self.rank : first + self.rank + 1]]
            found += [each for part in self.told("newcomers", mine) for each in part]
            self.stop_together()
        return found

    def from_leader(self, purpose: str, make: Callable[[], T]) -> T:
        """Return what the leading process makes."""
        return make() if self.team is None else self.team.from_leader(purpose, make)

    def travelling(self, saved: Checkpoint) -> Checkpoint:
        """Return a checkpoint as it can be told to other processes, if there are some: on the CPU."""
        return saved if self.team is None else saved.to(torch.device("cpu"))

    def server(self) -> AbstractContextManager[None]:
        """Share the products of a server's half, which every process is about to compute from the same rows."""
        return nullcontext() if self.team is None else together(self.team)

    def patient(self) -> AbstractContextManager[None]:
        """Let Ctrl-C wait for the end of a round, if there are several processes; see `stop_together`."""
        return nullcontext() if self.team is None else self.team.patient()

    def stop_together(self) -> None:
        """Raise the KeyboardInterrupt that has come to any of the processes, in all of them, as all heard last."""
        if self.team is not None:
            self.team.stop_together()


ONE_PROCESS = Shard()
"""One process, with all clients."""


def cuts(work: Sequence[int], parts: int) -> tuple[int, ...]:
    """Return where to cut a list into neighbours with about as much work each, and at least one entry.

    >>> cuts([1, 1, 1, 1, 4], 2), cuts([9, 1, 1], 3)
    ((0, 4, 5), (0, 1, 2, 3))
    """
    total, done, found = sum(work), 0, [0]
    for i, each in enumerate(work):
        left = parts - len(found)  # cuts that are still to be made
        enough = 2 * done + each > 2 * total * len(found) / parts  # cutting after this one would be further off
        if left and i > found[-1] and (enough or len(work) - i == left):
            found.append(i)
        done += each
    return (*found, len(work))
