"""What exported files are called: every client's differently, and none like a file of the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedamp.errors import UserError
from fedamp.methods.alone_beside import ALONE
from fedamp.records.reading import BEST, CHECKPOINTS, DESCRIPTION, INPUTS, LINES, MODELS, RESULT, SCHEMA, STATE, XI

SAFETENSORS, ONNX, BOTH = "safetensors", "onnx", "both"
FORMATS = (SAFETENSORS, ONNX, BOTH)
ENDINGS = tuple(f".{kind}" for kind in (SAFETENSORS, ONNX))
LONGEST = 50
"""Characters of a client's name that its files have: a file's name has room for 255 bytes."""
OF_A_RUN = {BEST, DESCRIPTION, INPUTS, LINES, MODELS, RESULT, SCHEMA, STATE, XI}


def default_name(number: int, names: Sequence[str] | None, take_home: str | None) -> str:
    """Return the name of a client's files, without an ending.

    Its number makes it unique, also where names differ only in signs or in case ("St. Mary", "st-mary").

    >>> default_name(3, None, None), default_name(1, ["a", "St. Mary/2"], "alone")
    ('client-3', 'client-1-St-Mary-2-alone')
    """
    words = "" if names is None else "".join(sign if sign.isalnum() else " " for sign in names[number])
    name = "-".join(words.split())[:LONGEST]
    return "-".join(["client", str(number), *([name] if name else []), *([ALONE] if take_home == ALONE else [])])


def stem_of(folder: Path, out: Path | None, name: str) -> Path:
    """Return the path of a client's files without an ending: `out`, or its default name in the run's folder or `out`.

    Files of the run itself are refused.
    """
    stem = folder / name if out is None else out / name if out.is_dir() else out
    if stem.suffix.lower() in ENDINGS:
        stem = stem.with_name(stem.name[: -len(stem.suffix)])
    elif stem.suffix.lower() == ".json":
        raise UserError(f"out is {out}, but a .json goes beside the model; expected {' or '.join(ENDINGS)}")
    if not stem.parent.is_dir():
        raise UserError(f"there is no folder {stem.parent} to write to; make it, or give another file with --out")
    for ending in (*ENDINGS, ".json"):
        path = with_ending(stem, ending)
        own = path.name in OF_A_RUN or path.match(CHECKPOINTS)
        if own and path.resolve().parent == folder.resolve():
            raise UserError(f"{path} is a file of the run itself; give another file with --out")
    return stem


def with_ending(stem: Path, ending: str) -> Path:
    """Return a path with an ending; dots in its name stay."""
    return stem.with_name(stem.name + ending)
