"""Random numbers from coordinates: (seed, purpose, client, round) names a stream, whoever asks for it and whenever.

So a resumed run draws what an uninterrupted one draws, a client's batches do not depend on its neighbours,
and no random state is ever saved.
"""

import zlib

import numpy as np


def _sequence(seed: int, purpose: str, *coordinates: int) -> np.random.SeedSequence:
    # Lengths are fixed by the purpose, so that (1, 23) and (12, 3) can't meet.
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *coordinates])


def generator(seed: int, purpose: str, *coordinates: int) -> np.random.Generator:
    """Return the stream of a purpose at its coordinates.

    >>> generator(7, "batches", 3, 1).integers(10) == generator(7, "batches", 3, 1).integers(10)
    np.True_
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, *coordinates)))


def number(seed: int, purpose: str, *coordinates: int) -> int:
    """Return one whole number in [0, 2^63) for code that needs a seed instead of a stream."""
    return int(_sequence(seed, purpose, *coordinates).generate_state(1, np.uint64)[0] >> np.uint64(1))
