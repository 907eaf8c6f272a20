"""A silo's rows from an npz file: arrays x (N, ...) and y (N,). Nothing in it is unpickled."""

from __future__ import annotations

import warnings
from typing import IO

import numpy as np

from fedamp.data.silos.one_line import listed, one_line
from fedamp.data.silos.raw import Array, RawSilo
from fedamp.errors import UserError


def read_npz(file: IO[bytes], name: str) -> RawSilo:
    """Return the rows of a silo; its targets are in `y`."""
    arrays = _load_npz(file)
    missing = [key for key in ("x", "y") if key not in arrays]
    if missing:
        raise UserError(
            f"there is no array {missing[0]!r} in the file, which has {listed(sorted(arrays))}; "
            "expected x (samples, ...) and y (samples,)"
        )
    x, y = arrays["x"], arrays["y"]
    # Of one width and byte order, so that later code has few types to handle; uint8 stays, as it means pictures.
    if x.dtype == np.float16 or x.dtype.kind == "b":
        x = x.astype(np.float32)
    elif x.dtype.kind == "f" and x.dtype.itemsize > 8:
        x = x.astype(np.float64)
    y = y.astype(np.int64) if y.dtype.kind == "b" else y
    return RawSilo(name, x.astype(x.dtype.newbyteorder("="), copy=False), y)


def _load_npz(file: IO[bytes]) -> dict[str, Array]:
    """Return x and y of an npz file, with None for the other arrays: these are not read."""
    refused = ""
    try:
        # Warnings are for the author of a file; a silo's operator gets an array or an error.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                refused = "it holds a single array; save with np.savez(file, x=..., y=...)"
            else:
                arrays = {key: archive[key] if key in ("x", "y") else None for key in archive.files}
                for key in ("x", "y"):
                    array = arrays.get(key)
                    if array is not None and not isinstance(array, np.ndarray):
                        refused = refused or f"its entry {key!r} is not an array"
                    elif array is not None and array.dtype.kind == "U":
                        array.tolist()  # raises if a character is out of range
    except Exception as error:
        # Whatever a damaged archive makes zipfile, zlib or numpy raise: the file can't be read.
        if "Object arrays" in str(error):
            refused = "an array holds Python objects, which could run code; save numbers or fixed-width text"
        elif "pickle" in str(error):
            refused = "it is not a zip archive"
        else:
            refused = " ".join(str(error).split()) or type(error).__name__
    if refused:
        raise UserError(f"not a readable npz file ({one_line(refused)}); expected one made by np.savez")
    return arrays  # type: ignore[return-value]
