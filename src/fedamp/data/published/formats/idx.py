"""The idx format of the MNIST family: a magic number, the dimensions, then bytes. The reader trusts nothing.

magic      4 bytes: 0, 0, the type (8: unsigned byte), the number of dimensions
dimensions 4 bytes each, big-endian: how many items, then rows and columns if they are pictures
items      one byte for each label or pixel, row by row, to the end of the file
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedamp.data.published.formats.common import MOST_BYTES, advice, read_at_most
from fedamp.errors import UserError

_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTE = 8


def read_idx(path: Path, name: str = "NAME") -> NDArray[np.uint8]:
    """Return the labels (N,) or pictures (N, rows, columns) of an idx file, gzipped or plain.

    Its first bytes say which of the two it is: browsers unpack a download and keep the name's ".gz". Memory
    grows with what the file really holds, never with what its header promises, and nothing is unpacked beyond
    that promise. `name` is the data set, for the error's advice.
    """
    try:
        with path.open("rb") as file:
            gzipped = file.read(2) == _GZIP
            file.seek(0)
            if not gzipped:
                return _read(path, file)
            with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                return _read(path, unpacked)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is damaged gzip ({error}){advice(name)}") from None
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror or error}){advice(name)}") from None
    except ValueError as error:
        raise UserError(f"{error}{advice(name)}") from None


def _read(path: Path, file: BinaryIO | gzip.GzipFile) -> NDArray[np.uint8]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        begins = f"begins with {magic.hex(' ')}" if magic else "is empty"
        raise UserError(f"{path} {begins}; expected an idx file, which begins with 00 00 08 01 or 00 00 08 03")
    kind, num_dimensions = magic[2:]
    if kind != _UNSIGNED_BYTE:
        raise UserError(f"{path} is an idx file of type 0x{kind:02x}; expected 0x08, unsigned bytes")
    if num_dimensions not in (1, 3):
        raise UserError(f"{path} is an idx file of {num_dimensions} dimensions; expected 1 (labels) or 3 (pictures)")
    header = file.read(4 * num_dimensions)
    if len(header) < 4 * num_dimensions:
        raise UserError(f"{path} ends within its header; expected {num_dimensions} dimensions of 4 bytes")
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
    total = math.prod(shape)
    if not total:
        raise UserError(f"{path} has dimensions {shape}; expected each to be 1 or more")
    if total > MOST_BYTES:
        raise UserError(f"{path} promises {total} bytes by dimensions {shape}; expected {MOST_BYTES} at most")
    # One byte beyond the promise: it shows that a file is too long, and lets gzip reach its own checksum.
    content = read_at_most(file, total + 1)
    if len(content) != total:
        fault = "more" if len(content) > total else f"only {len(content)}"
        raise UserError(f"{path} has {fault} bytes after its header; expected {total} by dimensions {shape}")
    return np.frombuffer(content, np.uint8).reshape(shape)
