"""How many rounds a silo has trained, in a file of its own, and the limit that it sets itself.

run/ledger.json   counted before a reply leaves the silo; it survives restarts. It also says whether the silo promises
                  privacy, for the day when what tells more of that (`privacy_ledger`) is gone
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        return int(self._read()["rounds"])

    @property
    def private(self) -> bool:
        """Whether a privacy ledger was begun beside it, and not given up when it was gone."""
        return bool(self._read().get("private"))

    def check(self) -> None:
        """Raise if no further round is allowed."""
        if self.limit is not None and self.trained >= self.limit:
            raise UnwillingError(
                TRAINED_ENOUGH,
                f"it has trained {self.trained} rounds, and --max-rounds is {self.limit}; to go on, start it with more",
            )

    def count(self) -> int:
        """Count one more round, if it is allowed, and return how many there are now."""
        with self._locked():
            self.check()
            write_json(self.folder / LEDGER, {**self._read(), "rounds": self.trained + 1})
            return self.trained

    def note_private(self, private: bool) -> None:
        """Keep in mind whether the silo promises privacy."""
        with self._locked():
            if private != self.private:
                write_json(self.folder / LEDGER, {**self._read(), "private": private})

    def _read(self) -> dict[str, Any]:
        return read_json(self.folder / LEDGER) or {"rounds": 0}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{LEDGER}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
