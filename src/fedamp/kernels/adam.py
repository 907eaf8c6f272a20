"""A step of Adam with the pull to an anchor, in one pass over the rows.

    g = gradient + strength (w - anchor)
    first = beta1 first + (1 - beta1) g,    second = beta2 second + (1 - beta2) g^2
    w = w - lr (first / (1 - beta1^t)) / (sqrt(second / (1 - beta2^t)) + eps)

That is 32 bytes a value in float32, where torch's kernels for the gradient's copy, the pull and Adam move 68.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Columns that one program takes."""


def adam_step(
    w: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    t: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    anchor: Tensor | None = None,
    strength: Tensor | None = None,
) -> None:
    """Take step t (from 1) in place; rows are `(n, d)`, contiguous and float32, the strength of the pull `(n, 1)`."""
    n, d = w.shape
    pulled = anchor is not None and strength is not None
    # Triton launches on the current device, wherever the tensors are.
    with torch.cuda.device_of(w):  # type: ignore[no-untyped-call]
        _step[triton.cdiv(d, BLOCK), n](
            *(w, gradient, first, second, anchor if pulled else w, strength if pulled else w, d),
            *(lr / (1 - betas[0] ** t), (1 - betas[1] ** t) ** 0.5, 1 - betas[0], betas[1], 1 - betas[1], eps),
            PULLED=pulled,
            BLOCK=BLOCK,
        )


@triton.jit
def _step(
    w,
    gradient,
    first,
    second,
    anchor,
    strength,
    d,
    rate,
    root,
    new1,
    old2,
    new2,
    eps,
    PULLED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1).to(tl.int64)
    at, inside = row * d + columns, columns < d
    x = tl.load(w + at, inside)
    g = tl.load(gradient + at, inside)
    if PULLED:
        g += tl.load(strength + row) * (x - tl.load(anchor + at, inside))
    m = tl.load(first + at, inside)
    v = tl.load(second + at, inside)
    m += new1 * (g - m)
    v = old2 * v + new2 * g * g
    tl.store(first + at, m, inside)
    tl.store(second + at, v, inside)
    tl.store(w + at, x - rate * m / (tl.sqrt_rn(v) / root + eps), inside)
