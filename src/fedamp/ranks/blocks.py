"""A server's products of all models, by blocks of columns: several processes take some blocks each.

Off unless `together` is entered, which all processes must do at the same time and with the same rows. So what a client
computes of its own rows is never shared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor

from fedamp.ranks.team import Team

MANY = 256
"""Models from which on processes share a mixture. A value of it takes 2 m operations in float64 to make, and as long to
send as some hundred models take; with fewer each process makes all of it."""

_TEAM: ContextVar[Team | None] = ContextVar("fedamp_blocks", default=None)


@contextlib.contextmanager
def together(team: Team | None) -> Iterator[None]:
    """Share the products inside among these processes."""
    token = _TEAM.set(team)
    try:
        yield
    finally:
        _TEAM.reset(token)


@dataclass(frozen=True)
class Share:
    """The blocks of columns that this process takes, of all."""

    team: Team | None
    blocks: Sequence[slice]

    @property
    def mine(self) -> Sequence[slice]:
        """The blocks of this process: neighbours, so that what it makes is one piece."""
        return self._of(self.team.rank) if self.team else self.blocks

    def _of(self, rank: int) -> Sequence[slice]:
        assert self.team is not None
        cut, size = len(self.blocks), self.team.size
        return self.blocks[rank * cut // size : (rank + 1) * cut // size]

    def summed(self, part: Tensor) -> Tensor:
        """Return the sum over all processes, in the order of ranks: the same bits in each of them."""
        if self.team is None:
            return part
        return self.team.stack("products of models", part[None], [1] * self.team.size).sum(0)

    def joined(self, made: Tensor) -> Tensor:
        """Fill in the columns `(n, d)` that other processes have made, and return it."""
        if self.team is None:
            return made
        spans = [_span(self._of(rank), made.shape[1]) for rank in range(self.team.size)]
        mine = made[:, spans[self.team.rank]].T.contiguous()
        whole = self.team.stack("mixtures of models", mine, [span.stop - span.start for span in spans])
        return whole.T.contiguous()


def _span(blocks: Sequence[slice], end: int) -> slice:
    return slice(blocks[0].start, min(blocks[-1].stop, end)) if blocks else slice(0, 0)


def share(blocks: Iterator[slice], num_models: int | None = None) -> Share:
    """Return which blocks this process takes: all, unless several work `together` and there is enough for each.

    `num_models` is given for a mixture, all of whose values must travel.
    """
    team, found = _TEAM.get(), list(blocks)
    if team is None or len(found) < team.size or (num_models is not None and num_models < MANY):
        return Share(None, found)
    return Share(team, found)
