"""Layers for n clients, side by side in the channels: each is made from a layer for one client.

A layer keeps the names of its parameters and buffers, so that a module's values are found where they were. Called with
n clients' values (by `torch.func.functional_call`) each value has n in front: a weight `(out, in)` is `(n, out, in)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedamp import kernels


class ClientLinear(nn.Module):
    """n linear layers: `(B, n in) -> (B, n out)`, weights `(n, out, in)`."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return one batched product."""
        if x.ndim != 2:
            raise NotImplementedError(f"a linear layer on samples of {x.ndim - 1} axes")
        apart = torch.unflatten(x, 1, (len(self.weight), -1)).transpose(0, 1)
        weight = self.weight.transpose(1, 2)
        out = torch.bmm(apart, weight) if self.bias is None else torch.baddbmm(self.bias[:, None], apart, weight)
        return out.transpose(0, 1).flatten(1)


class ClientConv2d(nn.Module):
    """n convolutions: `(B, n in, H, W) -> (B, n out, H', W')`, weights `(n, out, in, h, w)`."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.kernel_size, self.stride, self.padding = layer.kernel_size, layer.stride, layer.padding
        self.dilation, self.groups = layer.dilation, layer.groups

    def forward(self, x: Tensor) -> Tensor:
        """Return one grouped convolution, or products if these are faster."""
        if not self._products_pay(x):
            return self.convolved(x, None if self.bias is None else self.bias.flatten())
        return self.as_products(x)

    def convolved(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return the convolution in the way that is fastest for these inputs."""
        if x.is_cuda and self._windows_pay():
            return self.in_windows(x, bias)
        return self.grouped(x, bias)

    def grouped(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return one convolution of n groups of channels."""
        weight = self.weight.flatten(0, 1)
        if x.is_cuda:  # a client's channels are then neighbours in memory: several times faster
            x = x.contiguous(memory_format=torch.channels_last)
            weight = weight.contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups * len(self.weight))

    def _windows_pay(self) -> bool:
        # With a stride, or from 512 channels on, a GPU's library makes a grouped convolution of copies, one for each
        # client. Windows of one place are a copy at most; larger ones take up to nine times the memory of the input,
        # which a compiled pass writes once (benchmarks/gpu_convolutions.py).
        if (self.groups, self.dilation) != (1, (1, 1)) or len(self.weight) == 1:
            return False
        places = math.prod(self.kernel_size)
        if places == 1:
            return True
        copied = max(self.stride) > 1 or self.weight.shape[2] >= 512
        return copied and places <= 9 and torch.compiler.is_compiling() and torch.is_autocast_enabled("cuda")

    def in_windows(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return the convolution as n products of windows and weights, each of which reads one client's channels."""
        windows = self._windows(x)
        weight = self.weight.permute(0, 1, 3, 4, 2).flatten(2).to(x.dtype)
        out = torch.bmm(windows.flatten(0, 2).transpose(0, 1), weight.transpose(1, 2)).transpose(0, 1).flatten(1)
        if bias is not None:
            out = out + bias.to(out.dtype)
        return torch.unflatten(out, 0, windows.shape[:3]).permute(0, 3, 1, 2)

    def _windows(self, x: Tensor) -> Tensor:
        """Return the windows of each client's channels, `(B, H', W', n, h w in)`."""
        (height, width), (down, right), n = self.kernel_size, self.stride, len(self.weight)
        up, left = (0, 0) if isinstance(self.padding, str) else self.padding  # the only word left is "valid"
        places = (F.pad(x, (left, left, up, up)) if up or left else x).permute(0, 2, 3, 1)
        last, end = places.shape[1] - height + 1, places.shape[2] - width + 1
        seen = [places[:, i : last + i : down, j : end + j : right] for i in range(height) for j in range(width)]
        if len(seen) == 1:
            return torch.unflatten(seen[0].contiguous(), 3, (n, -1))
        return torch.stack([torch.unflatten(part, 3, (n, -1)) for part in seen], 4).flatten(4)

    def _products_pay(self, x: Tensor) -> bool:
        # Grouped convolutions of one or two channels are slow on a GPU; written out as products they are fast in bf16,
        # on the first layer, whose inputs need no gradient.
        few = self.groups == 1 and self.dilation == (1, 1) and math.prod(self.weight.shape[2:]) <= 64
        short = x.dtype == torch.float32 and torch.is_autocast_enabled("cuda")
        return x.is_cuda and short and few and not x.requires_grad

    def as_products(self, x: Tensor) -> Tensor:
        """Return the convolution as products of patches and weights."""
        out = self._products(x)
        if self.bias is not None:
            out = out + self.bias[:, :, None, None].to(out.dtype)
        return out.permute(0, 3, 4, 1, 2).flatten(3).permute(0, 3, 1, 2)

    def _products(self, x: Tensor) -> Tensor:
        """Return n products of patches `(n, B H' W', in h w)` and weights, without bias, as `(B, n, out, H', W')`."""
        n, inner = len(self.weight), math.prod(self.weight.shape[2:])
        up, left = (0, 0) if isinstance(self.padding, str) else self.padding  # the only word left is "valid"
        height, width = self.kernel_size
        padded = torch.unflatten(F.pad(x.to(torch.bfloat16), (left, left, up, up)), 1, (n, -1))
        seen = padded.unfold(3, height, self.stride[0]).unfold(4, width, self.stride[1])  # (B, n, in, H', W', h, w)
        seen = seen.permute(1, 0, 3, 4, 2, 5, 6)
        shape, short = seen.shape[:4], -inner % 8  # the matrix units take multiples of 8
        patches = seen.new_zeros((*shape, inner + short))
        torch.unflatten(patches[..., :inner], -1, seen.shape[4:]).copy_(seen)
        weight = F.pad(self.weight.flatten(2), (0, short)).transpose(1, 2)
        out = torch.bmm(patches.flatten(1, 3), weight)
        return torch.unflatten(out, 1, shape[1:]).permute(1, 0, 4, 2, 3)


HALVING = tuple((size, step, 0, 1, False) for size in (2, (2, 2)) for step in (2, (2, 2)))
"""Windows of 2 x 2 side by side, as a max pool spells them."""


class ClientPooledConv2d(ClientConv2d):
    """n convolutions, each with the ReLU and the max pool that follow it."""

    def __init__(self, layer: nn.Conv2d, pool: nn.MaxPool2d) -> None:
        super().__init__(layer)
        self.window = pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled convolution, rectified."""
        if self.bias is not None and self.pools_in_one(x):
            from fedamp.kernels.pool import pooled

            if self._products_pay(x):
                return pooled(self._products(x), self.bias)
            return pooled(torch.unflatten(self.convolved(x, None), 1, self.bias.shape), self.bias)
        # The ReLU comes last: max(relu(x)) = relu(max(x)), and the gradients are the same too, but there are only a
        # quarter of the values to go through for a window of 2 x 2.
        return F.relu(F.max_pool2d(super().forward(x), *self.window))

    def pools_in_one(self, x: Tensor) -> bool:
        """Return whether bias, pool and ReLU are one kernel for inputs like these."""
        return self.bias is not None and self.window in HALVING and kernels.usable(x)


class ClientBatchNorm(nn.Module):
    """n normalisations, each over its own channels: `(B, n C, ...)`, weights and statistics `(n, C)`."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, layer: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        super().__init__()
        self.momentum, self.eps = layer.momentum, layer.eps
        self.register_parameter("weight", layer.weight)
        self.register_parameter("bias", layer.bias)
        for name, value in layer._buffers.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, and move the statistics in place if the layer trains."""
        use_batch = self.training or self.running_mean is None
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        # Statistics are moved in place, so these must be views: they are, of the copies that each pass is given.
        mean, var = (None if value is None else value.view(-1) for value in (self.running_mean, self.running_var))
        weight, bias = (None if value is None else value.reshape(-1) for value in (self.weight, self.bias))
        return F.batch_norm(x, mean, var, weight, bias, use_batch, self.momentum or 0.0, self.eps)


class ClientUnflatten(nn.Module):
    """n reshapings: `(B, n a b, ...) -> (B, n a, b, ...)`."""

    def __init__(self, layer: nn.Unflatten) -> None:
        super().__init__()
        _, *self.rest = layer.unflattened_size

    def forward(self, x: Tensor) -> Tensor:
        """Return the input with its channels cut."""
        return torch.unflatten(x, 1, (-1, *self.rest))


FOR_CLIENTS: dict[type[nn.Module], Callable[[Any], nn.Module]] = {
    nn.Linear: ClientLinear,
    nn.Conv2d: ClientConv2d,
    nn.BatchNorm1d: ClientBatchNorm,
    nn.BatchNorm2d: ClientBatchNorm,
    nn.Unflatten: ClientUnflatten,
}
"""The layers that need a form of their own for n clients."""

AS_THEY_ARE: set[type[nn.Module]] = {
    nn.Sequential,
    nn.Identity,
    nn.Flatten,
    *(nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
}
"""The layers that treat channels separately, and so need no change for n clients."""
