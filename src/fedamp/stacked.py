"""One pass of a module for n clients at once: clients stand side by side in the channels.

The inputs of n clients, `(n, B, C, ...)`, become one batch `(B, n C, ...)` in which a client's channels are neighbours.
Then a convolution of all clients is one grouped convolution, BatchNorm over n C channels is each client's own, a
linear layer is a batched product, and whatever treats channels apart (pooling, ReLU) needs no change at all. The
numbers are those of vmap; there are no axes to be moved about between layers, and no slow path.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call


class _Linear(nn.Linear):
    """n linear layers: `(B, n in) -> (B, n out)`, weights `(n, out, in)`."""

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            raise NotImplementedError(f"a linear layer on samples of {x.ndim - 1} axes")
        apart = x.unflatten(1, (len(self.weight), -1)).transpose(0, 1)
        weight = self.weight.transpose(1, 2)
        out = torch.bmm(apart, weight) if self.bias is None else torch.baddbmm(self.bias[:, None], apart, weight)
        return out.transpose(0, 1).flatten(1)


class _Conv2d(nn.Conv2d):
    """n convolutions: `(B, n in, H, W) -> (B, n out, H', W')`, weights `(n, out, in, h, w)`."""

    def forward(self, x: Tensor) -> Tensor:
        out = self.convolve(x)
        return out if self.bias is None else out + self.bias.reshape(1, -1, 1, 1)

    def convolve(self, x: Tensor) -> Tensor:
        weight = self.weight.flatten(0, 1)
        if x.is_cuda:  # a client's channels are then neighbours in memory: several times faster, with few channels too
            x = x.contiguous(memory_format=torch.channels_last)
            weight = weight.contiguous(memory_format=torch.channels_last)
        groups = self.groups * len(self.weight)
        return F.conv2d(x, weight, None, self.stride, self.padding, self.dilation, groups)


class _PooledConv2d(_Conv2d):
    """n convolutions, each with the ReLU and the max pool that follow it."""

    pool: nn.MaxPool2d

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.reshape(1, -1, 1, 1)
        pool = self.pool
        return finish(self.convolve(x), bias, pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)


def finish(x: Tensor, bias: Tensor | None, *window: Any) -> Tensor:
    """Return what a convolution's bias, ReLU and max pool make of its products.

    The ReLU comes last: max(relu(x)) = relu(max(x)), and so are the gradients, with a quarter of the values to go
    through for a window of 2 x 2.
    """
    kernel, stride, padding, dilation, ceil_mode = window
    return F.relu(F.max_pool2d(x if bias is None else x + bias, kernel, stride, padding, dilation, ceil_mode))


class _BatchNorm:
    """n normalisations, each over its own channels: `(B, n C, ...)`, weights and statistics `(n, C)`."""

    def forward(self: nn.BatchNorm2d, x: Tensor) -> Tensor:  # type: ignore[misc]
        use_batch = self.training or self.running_mean is None
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        # Statistics are moved in place, so these must be views: they are, of the copies that each pass is given.
        mean, var = (None if value is None else value.view(-1) for value in (self.running_mean, self.running_var))
        weight, bias = (None if value is None else value.reshape(-1) for value in (self.weight, self.bias))
        return F.batch_norm(x, mean, var, weight, bias, use_batch, self.momentum or 0.0, self.eps)


class _BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """Of vectors or sequences."""


class _BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """Of pictures."""


class _Unflatten(nn.Unflatten):
    """`(B, n a b, ...) -> (B, n a, b, ...)`."""

    def forward(self, x: Tensor) -> Tensor:
        _, *rest = self.unflattened_size
        return x.unflatten(1, (-1, *rest))


_WITH_CLIENTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: _Linear,
    nn.Conv2d: _Conv2d,
    nn.BatchNorm1d: _BatchNorm1d,
    nn.BatchNorm2d: _BatchNorm2d,
    nn.Unflatten: _Unflatten,
}
_AS_THEY_ARE = {
    nn.Sequential,
    nn.Identity,
    nn.Flatten,
    *(nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
}


def _known(part: nn.Module) -> bool:
    """Whether a module does the same to a client's channels, whoever stands beside it."""
    hooked = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
    constant = any(not p.requires_grad for p in part.parameters(recurse=False)) or part._non_persistent_buffers_set
    if hooked or constant:
        return False
    if isinstance(part, nn.Flatten):
        return (part.start_dim, part.end_dim) == (1, -1)
    if isinstance(part, nn.Unflatten):
        return part.dim == 1 and -1 not in part.unflattened_size
    if isinstance(part, nn.Conv2d):
        return part.padding_mode == "zeros"
    if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
        return part.momentum is not None
    return True


def _join(layers: nn.Sequential) -> None:
    """Let convolutions take over the ReLU and the max pool that follow them."""
    for i in range(len(layers) - 2):
        conv, relu, pool = layers[i], layers[i + 1], layers[i + 2]
        if type(conv) is nn.Conv2d and type(relu) is nn.ReLU and type(pool) is nn.MaxPool2d and not pool.return_indices:
            conv.__class__ = _PooledConv2d
            object.__setattr__(conv, "pool", pool)  # not as a part of its own: names stay what they are
            layers[i + 1] = layers[i + 2] = nn.Identity()


class StackedModule:
    """A module of known layers, as a function of n clients' parameters and inputs.

    A module of one's own may stand among the layers where it says `side_by_side = True`: it promises that its
    `forward` does nothing but call its layers and combine what they return element by element.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = copy.deepcopy(module)
        for part in list(self.module.modules()):
            if type(part) is nn.Sequential:
                _join(part)
            part.__class__ = _WITH_CLIENTS.get(type(part), type(part))

    @classmethod
    def of(cls, module: nn.Module) -> StackedModule | None:
        """Return the module for n clients, or None where it has a layer that is not known here."""
        kinds = _WITH_CLIENTS.keys() | _AS_THEY_ARE
        for part in module.modules():
            own = "side_by_side" in vars(type(part)) and not list(part.parameters(recurse=False))
            if not (own or type(part) in kinds) or not _known(part):
                return None
        return cls(module)

    def __call__(self, values: Mapping[str, Tensor], x: Tensor, training: bool) -> Tensor:
        """Return outputs `(n, B, k)` for inputs `(n, B, ...)`; buffers among the values `(n, ...)` are moved in place."""
        if self.module.training != training:
            self.module.train(training)
        beside = x.transpose(0, 1).flatten(1, 2)
        output: Tensor = functional_call(self.module, dict(values), (beside,))
        return output.unflatten(1, (len(x), -1)).transpose(0, 1)
