"""A digest of each row of a silo, by what it holds: the same wherever the row stands, and whoever holds it.

A row is known by its inputs. So a label that is corrected later does not move it from one side to the other, and the
same inputs never stand on both. The columns that the silos agreed on count, in the order of their names; what is
dropped does not. Digests stay in memory: no message and no record holds one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

import numpy as np

from fedamp.data.silos.cells import label_name
from fedamp.data.silos.raw import RawSilo

SIZE = 16  # bytes
BLOCK = 1024  # rows that are converted at a time: pictures need eight times their memory as float64


def row_digests(silo: RawSilo) -> list[bytes]:
    """Return the digest of each row's inputs as they were read: numbers as float64, words as text.

    A missing cell is nan or no text, whatever it is filled with later.
    """
    words = {column: _encoded(silo, column) for column in sorted(silo.words)}
    digests = []
    for place, numbers in enumerate(_numbers(silo)):
        row = hashlib.blake2b(numbers, digest_size=SIZE)
        for cells in words.values():
            row.update(cells[place])
        digests.append(row.digest())
    return digests


def silos_digest(silos: Sequence[RawSilo], agreed: str = "") -> str:
    """Return one digest of silos' names, columns, rows and targets as they were read, and of what they agreed on."""
    total = hashlib.sha256(agreed.encode())
    for silo in sorted(silos, key=lambda silo: silo.name):
        targets = "\n".join(label_name(value) for value in silo.y.tolist())
        # Digests of rows are by the order of the columns' names, not by the names.
        columns = json.dumps([silo.columns, sorted(silo.words), silo.dates])
        total.update(f"{silo.name}\n{columns}\n{len(silo)}\n{targets}\n".encode("utf-8", "surrogatepass"))
        total.update(b"".join(row_digests(silo)))
    return total.hexdigest()


def _numbers(silo: RawSilo) -> Iterator[bytes]:
    """Yield each row's numbers as bytes; 0 and -0 are one number, and so is every nan."""
    x = silo.x.reshape(len(silo), -1)
    order = sorted(range(x.shape[1]), key=lambda i: silo.numeric[i]) if silo.columns is not None else slice(None)
    for start in range(0, len(x), BLOCK):
        block = np.ascontiguousarray(x[start : start + BLOCK, order], dtype="<f8") + 0.0
        block[np.isnan(block)] = np.nan
        for row in block:
            yield row.tobytes()


def _encoded(silo: RawSilo, column: str) -> list[bytes]:
    """Return the words of a column, each after its length, so that no two rows of words run together alike."""
    words, codes = silo.coded[column]
    texts = [word.encode("utf-8", "surrogatepass") for word in words]
    texts = [len(text).to_bytes(4, "little") + text for text in texts]
    return [texts[i] for i in codes.tolist()]
