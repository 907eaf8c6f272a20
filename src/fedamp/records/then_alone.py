"""What came of going on alone after the last round, as `result.json` has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedamp.records.summaries import finite
from fedamp.records.take_home import SYMBOLS


@dataclass(frozen=True)
class ThenAlone:
    """The rounds that each client went on alone: accuracies in percent, or errors in the target's unit.

    A score that is not finite is None.
    """

    entry: str  # the models from which everyone went on: "own", "received" or "between"
    round: int  # that made them
    taken: int  # of so many rounds alone the models are taken home; 0 if none helped
    held_out: list[float | None]  # after each round alone, on all held-out samples together
    test: list[float | None]  # and the mean of the clients' test scores

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        values: dict[str, Any] = finite(asdict(self))
        return values

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ThenAlone:
        """Return what `to_dict` gave."""
        return cls(**values)

    @property
    def in_words(self) -> str:
        """Return the finding in a few words."""
        began, tried = f"{SYMBOLS[self.entry]} of round {self.round}", len(self.held_out)
        if not self.taken:
            return f"none of {tried} rounds was better on held-out samples than {began}"
        more = "; the last was the best, so more may help" if self.taken == tried else ""
        return f"{self.taken} of {tried} rounds, from {began}{more}"
