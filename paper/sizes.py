"""How many samples CIFAR100's clients have: as many as make Separate come near the paper's figure.

The paper does not say, and what training alone reaches is the one figure that depends on nothing else. The other data
sets' sizes were found like this before anything else was run (`fedamp.config.presets`): short trials of Separate with
20 clients and a seed that no table has. For 50 clients there are no more than 1000 samples each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paper import results
from paper.published import PAPER, SETTING

SIZED = ("cifar100",)
"""The data sets whose runs wait for these trials."""

TRIED = {"iid": (200, 400, 600, 800, 1000), "pathological": (200, 400, 600, 800, 1000), "practical": (800, 1000)}
"""Samples of a client, by setting; in the practical one, of the first three groups' clients, and half of it of the
others': with less than 800 these would not have a sample of each class."""

TRIAL: dict[str, Any] = {"clients": 20, "rounds": 5}
TRIAL_SEED = 50
SEPARATE = 0  # its place among the paper's figures


def trial_label(setting: str, size: int) -> str:
    """Return the name of a trial."""
    return f"{setting}-samples-{size}"


def with_size(setting: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Return a preset's setting with this many samples a client."""
    many = {"sizes": [size] * 3 + [size // 2] * 2} if "sizes" in setting else {"samples": size}
    return {**setting, **many}


def found(data: str, setting: str) -> dict[int, float]:
    """Return what Separate reached in the trials so far, by size."""
    tried = {size: results.read(f"sizes-{data}", trial_label(setting, size)) for size in TRIED[setting]}
    return {size: result["own"]["best"] for size, result in tried.items() if result is not None}


def published(data: str, setting: str) -> float:
    """Return the paper's figure for Separate."""
    return next(PAPER[kind][data][SEPARATE] for kind, each in SETTING.items() if each == setting)


def chosen(data: str, setting: str) -> int | None:
    """Return the size at which Separate is nearest to the paper's figure; None until all are tried."""
    scores, goal = found(data, setting), published(data, setting)
    return min(scores, key=lambda size: abs(scores[size] - goal)) if len(scores) == len(TRIED[setting]) else None
