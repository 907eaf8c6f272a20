"""Rows cut into a module's named values."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def cut(row: Tensor, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return a row `(d,)` as tensors of these shapes, in this order; n rows `(n, d)` as tensors `(n, ...)`."""
    parts = torch.split(row, [math.prod(shape) for shape in shapes.values()], dim=-1) if shapes else ()
    return {
        name: torch.unflatten(part, -1, shape) if shape else part.squeeze(-1)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
