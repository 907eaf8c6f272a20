"""What a silo remembers between rounds, in files of its own: SCAFFOLD's control, APFL's own model, its last model.

Two states are kept: the one that the last round began from, which the server had accepted, and the one that it ended
with. So a lost reply, a repeated round or a stopped server does no harm: the next message says which was accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from fedamp.files import write_whole
from fedamp.records.checkpoints import state_of, state_tensors
from fedamp.records.tensor_file import write_tensors
from fedamp.rows import State

PREFIX = "silo"


@dataclass(frozen=True)
class Memory:
    """A folder with a file for each state that is kept."""

    folder: Path

    def rounds(self) -> list[int]:
        """Return the rounds after which a state is kept."""
        return sorted(int(path.stem.removeprefix("state-")) for path in self.folder.glob("state-*.safetensors"))

    def listed(self) -> str:
        """Return the rounds after which a state is kept, for a reader."""
        return ", ".join(str(k) for k in self.rounds()) or "none"

    def has(self, k: int) -> bool:
        """Return whether the state after round k is there and whole; its rows are not read."""
        try:
            with safe_open(self._path(k), framework="pt"):
                return True
        except (OSError, SafetensorError):
            return False

    def load(self, k: int) -> State | None:
        """Return the state after round k, or None if it is not there or not whole."""
        try:
            return state_of(PREFIX, 1, load_file(self._path(k)))
        except (OSError, SafetensorError):
            return None

    def save(self, k: int, state: State, began_from: int) -> None:
        """Keep the state after round k and the one that it began from; delete all others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_tensors(self._path(k), state_tensors(PREFIX, state))
        for old in self.rounds():
            if old not in (k, began_from):
                self._path(old).unlink(missing_ok=True)

    def newest(self, life: str) -> int:
        """Return the serial number of the newest message of this federation that was acted on, 0 for none."""
        try:
            known, _, serial = (self.folder / "serial").read_text().rpartition(" ")
            return int(serial) if known == life else 0
        except (OSError, ValueError):
            return 0

    def note(self, life: str, serial: int) -> None:
        """Keep the serial number of a message that is acted on: none that is older will be."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "serial", f"{life} {serial}".encode())

    def _path(self, k: int) -> Path:
        return self.folder / f"state-{k:07d}.safetensors"
