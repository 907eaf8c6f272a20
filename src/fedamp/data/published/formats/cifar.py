"""CIFAR-100's binary format: records of 3,074 bytes, one for each picture, and nothing else.

coarse label  1 byte, 0 to 19
fine label    1 byte, 0 to 99
pixels        3,072 bytes: 32 x 32 of red, then of green, then of blue, row by row
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedamp.data.published.formats.common import MOST_BYTES, advice, read_at_most
from fedamp.errors import UserError

RECORD = 2 + 3 * 32 * 32


def read_cifar100(path: Path, name: str = "cifar100") -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """Return pixels (N, 3, 32, 32), fine labels (N,) and coarse labels (N,) of a file.

    `name` is the data set, for the error's advice.
    """
    try:
        with path.open("rb") as file:
            content = read_at_most(file, MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror or error}){advice(name)}") from None
    if not content or len(content) > MOST_BYTES or len(content) % RECORD:
        length = "is empty" if not content else f"has {len(content)} bytes"
        raise UserError(f"{path} {length}; expected records of {RECORD} bytes and nothing else{advice(name)}")
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    coarse, fine = records[:, 0].copy(), records[:, 1].copy()
    for what, labels, classes in (("coarse", coarse, 20), ("fine", fine, 100)):
        if labels.max() >= classes:
            where = int((labels >= classes).argmax())
            raise UserError(
                f"{path} has {what} label {labels[where]} in record {where}; expected 0 to {classes - 1}{advice(name)}"
            )
    return np.ascontiguousarray(records[:, 2:]).reshape(-1, 3, 32, 32), fine, coarse
