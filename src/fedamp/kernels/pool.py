"""Bias, max pool of 2 x 2 and ReLU, in one pass over a convolution's output; its gradient likewise.

    y = relu(max over the window of x, plus bias)

Adding a bias and rounding keep an order, so the largest of the sums is the sum of the largest: the numbers are those of
one after the other. Of equals the first counts, as in torch; what is no number is passed on.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Channels that one program takes, at one place of one sample."""

CUT = 4
"""Noted instead of a place in the window where ReLU lets nothing through."""


def pooled(x: Tensor, bias: Tensor) -> Tensor:
    """Return `(B, n C, H/2, W/2)`, channels last, for the output `(B, n, C, H, W)` of n clients' convolutions.

    `x` may lie in memory in any order, without gaps; `bias` is `(n, C)`.
    """
    result: Tensor = _Pooled.apply(x, bias)  # type: ignore[no-untyped-call]
    return result


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        batch, n, channels, height, width = x.shape
        shape = batch, height // 2, width // 2, n * channels
        y, which = x.new_empty(shape), x.new_empty(shape, dtype=torch.uint8)
        # Triton launches on the current device, wherever the tensors are.
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            _forward[_grid(shape)](x, bias.reshape(-1), y, which, *_places(x, shape), CHANNELS=channels, BLOCK=BLOCK)
        ctx.save_for_backward(which)
        ctx.like = x.shape, x.stride(), bias.shape, bias.dtype
        return y.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        (which,) = ctx.saved_tensors
        shape, stride, *of_bias = ctx.like
        dy = gradient.permute(0, 2, 3, 1).contiguous()
        dx = dy.new_empty_strided(shape, stride)
        if shape[3] % 2 or shape[4] % 2:  # the last row or column is in no window
            dx.zero_()
        with torch.cuda.device_of(dy):  # type: ignore[no-untyped-call]
            _backward[_grid(dy.shape)](dy, which, dx, *_places(dx, dy.shape), CHANNELS=shape[2], BLOCK=BLOCK)
        through = dy.masked_fill(which == CUT, 0).sum((0, 1, 2), dtype=torch.promote_types(dy.dtype, torch.float32))
        return dx, through.view(of_bias[0]).to(of_bias[1])


def _grid(shape: tuple[int, ...]) -> tuple[int, int]:
    batch, height, width, channels = shape
    return batch * height * width, int(triton.cdiv(channels, BLOCK))


def _places(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return where things are: x's strides, and the height, width and channels of what is pooled."""
    return (*x.stride(), *shape[1:])


@triton.jit
def _forward(
    x,
    bias,
    y,
    which,
    sample_stride,
    client_stride,
    channel_stride,
    row_stride,
    column_stride,
    height,
    width,
    channels,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < channels
    corner = place // width // height * sample_stride + place // width % height * 2 * row_stride
    corner += place % width * 2 * column_stride
    at = corner + (channel // CHANNELS).to(tl.int64) * client_stride + channel % CHANNELS * channel_stride
    b = tl.load(bias + channel, inside)
    best = tl.load(x + at, inside).to(b.dtype)
    first = tl.full([BLOCK], 0, tl.int32)
    for k in tl.static_range(1, 4):
        value = tl.load(x + at + k // 2 * row_stride + k % 2 * column_stride, inside).to(b.dtype)
        better = (value > best) | (value != value)
        best = tl.where(better, value, best)
        first = tl.where(better, k, first)
    total = best + b
    cut = total <= 0
    tl.store(y + place * channels + channel, tl.where(cut, 0, total).to(y.dtype.element_ty), inside)
    tl.store(which + place * channels + channel, tl.where(cut, 4, first).to(tl.uint8), inside)


@triton.jit
def _backward(
    dy,
    which,
    dx,
    sample_stride,
    client_stride,
    channel_stride,
    row_stride,
    column_stride,
    height,
    width,
    channels,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < channels
    corner = place // width // height * sample_stride + place // width % height * 2 * row_stride
    corner += place % width * 2 * column_stride
    at = corner + (channel // CHANNELS).to(tl.int64) * client_stride + channel % CHANNELS * channel_stride
    gradient = tl.load(dy + place * channels + channel, inside)
    first = tl.load(which + place * channels + channel, inside).to(tl.int32)
    for k in tl.static_range(0, 4):
        value = tl.where(first == k, gradient, 0).to(dx.dtype.element_ty)
        tl.store(dx + at + k // 2 * row_stride + k % 2 * column_stride, value, inside)
