"""A silo's pictures in a folder for each class: SILO/CLASS/1.png. A picture's label is its folder's name."""

from __future__ import annotations

import os.path
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedamp.data.silos.one_line import one_line, shown
from fedamp.data.silos.raw import Array, RawSilo
from fedamp.errors import UserError

ENDINGS = (".png", ".jpg", ".jpeg")
MODES = ("L", "RGB")  # pillow's names


def is_picture_folder(entries: Sequence[Path]) -> bool:
    """Whether a silo's folder has folders, one for each class."""
    return bool(entries) and all(os.path.isdir(entry) for entry in entries)


def read_pictures(name: str, classes: Sequence[Path]) -> RawSilo:
    """Return a silo's pictures x (N, height, width), or (N, 3, height, width) in colour, as bytes; all of one size."""
    files = [path for folder in classes for path in _files(folder)]
    if not files:
        raise UserError(f"there are no pictures in {shown(classes[0].parent)}; expected .png or .jpg in its folders")
    first = _picture(files[0])
    x = np.empty((len(files), *first.shape), dtype=np.uint8)
    for place, path in enumerate(files):
        picture = _picture(path)
        if picture.shape != first.shape:
            raise UserError(
                f"{shown(path)} is {_size(picture)} and {shown(files[0])} is {_size(first)}; expected pictures of one "
                "size, all grey or all in colour"
            )
        x[place] = picture
    return RawSilo(name, x, np.array([path.parent.name for path in files]))


def _files(folder: Path) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise UserError(f"the folder {shown(folder)} can't be read: {error.strerror or error}") from error
    for path in found:
        if path.suffix.lower() not in ENDINGS or not os.path.isfile(path):
            raise UserError(
                f"{path.name!r} in {shown(folder)} is not a picture; expected .png or .jpg in a folder for each class: "
                "move it elsewhere, or start its name with a dot"
            )
    return found


def _picture(path: Path) -> Array:
    """Return a picture (height, width), or (3, height, width), as bytes."""
    try:
        from PIL import Image
    except ImportError:
        raise UserError("pictures are read by pillow, which is not installed; pip install pillow") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                mode, pixels = picture.mode, np.asarray(picture)
    except Exception as error:
        # Whatever a damaged file makes a decoder raise: it can't be read.
        raise UserError(
            f"{shown(path)} is not a readable picture ({one_line(str(error), 80)}); save it again"
        ) from error
    if mode not in MODES:
        raise UserError(
            f"{shown(path)} has colours of the kind {mode}; expected RGB or grey: convert it, say with pillow's "
            'picture.convert("RGB")'
        )
    return pixels if mode == "L" else np.moveaxis(pixels, 2, 0)


def _size(picture: Array) -> str:
    kind = "grey" if picture.ndim == 2 else "in colour"
    return f"{picture.shape[-1]} x {picture.shape[-2]}, {kind}"
