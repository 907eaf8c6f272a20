"""Whether a silo's data has changed since its last round: digests of its rows, in a file that never leaves the silo.

The server gets one number, the round in which the data changed; how much changed stays in the silo's log.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fedamp.data.clients import Clients
from fedamp.files import write_whole

FILE = "rows.npz"  # in the silo's run folder

Digests = NDArray[np.uint64]  # the first 8 bytes of each row's


@dataclass(frozen=True)
class KnownRows:
    """A file with digests of the rows of a silo's last round, and of those that it has ever trained on."""

    path: Path

    def changed_in(self) -> int:
        """Return the round in which the data was last found changed, 0 for none."""
        known = self._read()
        return 0 if known is None else int(known["changed"])

    def note(self, k: int, clients: Clients) -> str:
        """Take note of the rows that round k has; return in words what has changed since the last one, "" if nothing.

        It is noted before the training: rows of a round that breaks off count as trained on.
        """
        known, rows = self._read(), _with_labels(clients)
        train, held = _inputs(clients, "train"), _inputs(clients, "test", "validation")
        if known is None:
            self._write(rows, np.unique(train), 0)
            return ""
        added, removed = _more(rows, known["rows"]), _more(known["rows"], rows)
        if not added and not removed:
            return ""
        self._write(rows, np.union1d(known["trained"], train), k)
        return _text(added, removed, int(np.isin(held, known["trained"]).sum()))

    def _read(self) -> dict[str, Any] | None:
        """Return what is known; None if there is no file, or one that is damaged: it is then begun anew."""
        try:
            with np.load(io.BytesIO(self.path.read_bytes()), allow_pickle=False) as file:
                return {name: file[name] for name in ("rows", "trained", "changed")}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None

    def _write(self, rows: Digests, trained: Digests, changed: int) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez(buffer, rows=rows, trained=trained, changed=np.int64(changed))
        write_whole(self.path, buffer.getvalue())
        self.path.chmod(0o600)


def _inputs(clients: Clients, *sides: str) -> Digests:
    """Return the digests of a silo's rows on these sides, by which a row has its side: of their inputs."""
    assert clients.digests is not None, "a silo's rows are from its files"
    places = [place for side in sides for positions in getattr(clients, side) for place in positions.tolist()]
    return _numbers(clients.digests[place] for place in places)


def _with_labels(clients: Clients) -> Digests:
    """Return the digests of all of a silo's rows with their labels: a corrected label is a change too."""
    assert clients.digests is not None, "a silo's rows are from its files"
    labels = clients.y.cpu().numpy()
    return _numbers(
        hashlib.blake2b(digest + label.tobytes()).digest()
        for digest, label in zip(clients.digests, labels, strict=True)
    )


def _numbers(digests: Iterable[bytes]) -> Digests:
    return np.array([int.from_bytes(digest[:8], "little") for digest in digests], dtype=np.uint64)


def _more(rows: Digests, others: Digests) -> int:
    """Return how many rows there are that others don't have; a row may be there several times."""
    both, counts = np.unique(np.concatenate([rows, others]), return_counts=True)
    fewer = np.zeros(len(both), dtype=np.int64)
    np.add.at(fewer, np.searchsorted(both, others), 1)
    return int(np.maximum(counts - 2 * fewer, 0).sum())


def _text(added: int, removed: int, crossed: int) -> str:
    parts = [f"{count} {word}" for count, word in ((added, "added"), (removed, "removed")) if count]
    text = f"the data has changed: rows {', '.join(parts)}; scores before and after are on different held-out rows"
    if crossed:
        text += (
            f"; {crossed} held-out rows had been trained on, since a side without rows takes the nearest one: scores "
            "on them are too good"
        )
    return text
