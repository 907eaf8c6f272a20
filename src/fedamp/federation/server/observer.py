"""What the server's strategy reports while it plays rounds, and to whom: the record is the real observer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedamp.federation.server.state import Reply


@dataclass(frozen=True)
class PlayedRound:
    """A round that counts, by silos' identities."""

    k: int
    replies: Mapping[str, Reply]
    absent: Mapping[str, str]  # who was not in it, and why
    diagnostics: Mapping[str, Any]
    order: tuple[str, ...]  # whose row is where
    seconds: float  # of the whole round
    server_seconds: float  # of them, the server's own work
    num_bytes: Mapping[str, int] = field(default_factory=dict)  # `down` to all who were asked, `up` in good replies


class Observer(Protocol):
    """Follows a federation's rounds."""

    def round_played(self, played: PlayedRound) -> None:
        """Take note of a round before the next one is sent: what is written here is on the disk by then."""

    def last_scores(self, replies: Mapping[str, Reply]) -> None:
        """Take note of the scores of what the server would send after the last round; the federation has ended."""

    def say(self, text: str) -> None:
        """Tell the operator something, in one line."""

    def status(self, state: str) -> None:
        """Note that the federation is waiting, running or finished, and the state of each silo."""

    def readmitted(self) -> Iterable[str]:
        """Return whom the operator lets begin anew, until they are `rearranged`."""

    def removed(self) -> Iterable[str]:
        """Return whom the operator takes out, until they are `rearranged`."""

    def rearranged(self, readmitted: Sequence[str], removed: Sequence[str]) -> None:
        """Keep the state as it is now, with these silos readmitted or removed between two rounds."""

    def caught_up(self, serial: int) -> None:
        """Keep that messages up to this number were sent before: the record is older than what silos have seen."""

    def admitted(self) -> Iterable[str]:
        """Return the identities of silos that were set aside and that the operator lets in again; each once."""
