"""How many rounds a silo has trained, in a file of its own, and the limit that it sets itself.

run/ledger.json   counted before a reply leaves the silo; it survives restarts
"""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path

from fedamp.federation.silo.unwilling import UnwillingError
from fedamp.federation.wire.phrases import TRAINED_ENOUGH
from fedamp.files import read_json, write_json

LEDGER = "ledger.json"


@dataclass(frozen=True)
class Ledger:
    """A silo's count of rounds; `limit` is the most that it trains, None for no limit."""

    folder: Path
    limit: int | None = None

    @property
    def trained(self) -> int:
        """Rounds whose replies may have left the silo."""
        return int((read_json(self.folder / LEDGER) or {"rounds": 0})["rounds"])

    def check(self) -> None:
        """Raise if no further round is allowed."""
        if self.limit is not None and self.trained >= self.limit:
            raise UnwillingError(
                TRAINED_ENOUGH,
                f"it has trained {self.trained} rounds, and --max-rounds is {self.limit}; to go on, start it with more",
            )

    def count(self) -> int:
        """Count one more round, if it is allowed, and return how many there are now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{LEDGER}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.check()
            write_json(self.folder / LEDGER, {"rounds": self.trained + 1})
            return self.trained
