"""What is drawn for a row by what it holds, not by where it stands: a row keeps its lot whatever else is in the file.

u = keyed digest of the row in [0, 1), BLAKE2b (RFC 7693) with the seed and the purpose as its key. Equal rows have
equal lots, in whichever silo they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BITS = 53  # of a digest: as many as a float64 holds, so that u stays below 1


def lots(digests: Iterable[bytes], seed: int, purpose: str) -> NDArray[np.float64]:
    """Return u in [0, 1) for each row, by its digest.

    >>> u = lots([b"one", b"two", b"one"], 0, "test")
    >>> bool(u[0] == u[2]), bool(u[0] == u[1]), bool(lots([b"one"], 1, "test")[0] == u[0])
    (True, False, False)
    """
    key = hashlib.blake2b(f"{seed} {purpose}".encode(), digest_size=32).digest()
    drawn = [int.from_bytes(hashlib.blake2b(each, digest_size=8, key=key).digest(), "little") for each in digests]
    return np.array([(number >> (64 - BITS)) / 2**BITS for number in drawn], dtype=np.float64)


def below(u: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """Return which rows are held out: u < share, and at least one on each side, if rows differ at all.

    If none is below, the smallest u is held out; if all are, the largest is not. Only then can a row change sides when
    others come or go.

    >>> below(np.array([0.9, 0.1, 0.5]), 0.2).tolist(), below(np.array([0.9, 0.3, 0.5]), 0.2).tolist()
    ([False, True, False], [False, True, False])
    """
    held = u < share
    if not held.any():
        held = u == u.min()
    return u != u.max() if held.all() else held
