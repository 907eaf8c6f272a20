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

Size = int | tuple[int, int]


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
    """Return the convolution of inputs `(B, C, H, W)` as the weights' product with all windows `(B, C k k, L)`."""
    windows = F.unfold(input, weight.shape[2:], dilation, padding, stride)
    output = weight.flatten(1) @ windows
    if bias is not None:
        output = output + bias[:, None]
    height = _windows_along(input.shape[2], weight.shape[2], *(_first(size) for size in (stride, padding, dilation)))
    return output.reshape(*output.shape[:2], height, -1)


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


def _first(size: Size) -> int:
    return size if isinstance(size, int) else size[0]


def _windows_along(length: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return how many windows fit along one side of a picture."""
    return (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
