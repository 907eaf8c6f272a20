"""Plays runs from a list, in float64: one process of several, or the only one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

import fedamp
from fedamp import rows
from fedamp.errors import UserError
from fedamp.ranks import blocks
from fedamp.ranks.launched import launched
from fedamp.ranks.team import leave
from fedamp.training.torch_switches import use_dtype
from helpers import mlp, silos


class StopHere(Exception):  # noqa: N818
    """What an observer raises to break a run off."""


def play_job(out: Path, settings: dict[str, Any], stop: int | None = None, own: bool = False, cut: bool = True) -> None:
    """Play one run to its folder; until round `stop`, if it is given.

    `own` are samples and a model with BatchNorm and dropout from Python. With `cut` a server's products are shared
    among processes even though they are small.
    """
    before = rows.BLOCK, blocks.MANY
    if cut:
        rows.BLOCK, blocks.MANY = 64, 2
    if own:
        pairs = [tuple(part[:, :6] if part.ndim == 2 else part % 3 for part in one) for one in silos([9, 14, 30, 8])]
        settings = {**settings, "clients": pairs, "model": mlp(norm=True, dropout=0.2)}

    def observer(line: Any) -> None:
        if line["round"] == stop:
            raise StopHere

    try:
        with use_dtype(torch.float64):
            fedamp.run(out=out, observer=observer, device="cpu", **settings)
    except (StopHere, UserError):
        if stop is None:
            raise
    finally:
        rows.BLOCK, blocks.MANY = before


if __name__ == "__main__":
    for job in json.loads(Path(sys.argv[1]).read_text()):
        play_job(Path(job.pop("out")), **job)
    if launched() is not None:
        leave(0)
