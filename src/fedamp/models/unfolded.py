"""Convolutions as products, for passes in which each sample has gradients of its own.

Under vmap over samples the gradient of a convolution's weights is a convolution with a group for each sample, and a
GPU's library takes thousands of groups one after another. Unfolded, it is one batched product.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]
Size = int | Pair


class UnfoldedConvolutions(TorchFunctionMode):
    """Swap `conv2d` for `unfolded_conv2d` where that is the same; every other call stays as it is."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (F.conv2d, torch.conv2d) and _can_unfold(*args, **kwargs):
            return unfolded_conv2d(*args, **kwargs)
        return func(*args, **kwargs)


def unfolded_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution of inputs `(B, C, H, W)` as the weights' product with all windows `(B, C k k, H' W')`."""
    height, width = weight.shape[2:]
    form = [_pair(size) for size in (dilation, padding, stride)]
    windows: Tensor = _Windows.apply(input, (height, width), *form)  # type: ignore[no-untyped-call]
    output = weight.flatten(1) @ windows.flatten(3).flatten(1, 2)
    if bias is not None:
        output = output + bias[:, None]
    return torch.unflatten(output, 2, windows.shape[3:])


class _Windows(torch.autograd.Function):
    """The windows of pictures `(B, C, H, W)`, as `(B, C, height width, H', W')`.

    They are what `F.unfold` gives, which takes one sample after another on a GPU; here they are one copy of a view. Its
    gradient is `F.fold`, which takes all samples at once.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
        (up, left), (tall, wide) = padding, dilation
        padded = F.pad(input, (left, left, up, up))
        seen = padded.unfold(2, tall * (kernel[0] - 1) + 1, stride[0]).unfold(3, wide * (kernel[1] - 1) + 1, stride[1])
        return seen[..., ::tall, ::wide].permute(0, 1, 4, 5, 2, 3).flatten(2, 3)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        picture, *form = inputs
        ctx.shape, ctx.form = picture.shape[2:], form

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return F.fold(gradient.flatten(3).flatten(1, 2), ctx.shape, *ctx.form), None, None, None, None


def _can_unfold(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> bool:
    """Return whether a convolution is one of a batch of pictures, in one group, with its padding in numbers."""
    return groups == 1 and input.ndim == 4 and not isinstance(padding, str)


def _pair(size: Size) -> Pair:
    return (size, size) if isinstance(size, int) else (size[0], size[1])
