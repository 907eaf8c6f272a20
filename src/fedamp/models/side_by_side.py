"""One pass of a module for n clients at once: clients stand side by side in the channels.

The inputs of n clients, `(n, B, C, ...)`, become one batch `(B, n C, ...)` in which a client's channels are neighbours.
Then a convolution of all clients is one grouped convolution, BatchNorm over n C channels is each client's own, a
linear layer is a batched product, and whatever treats channels apart (pooling, ReLU) needs no change at all. The
numbers are those of vmap; there are no axes to be moved about between layers, and no slow path.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedamp.models.modes import Modes
from fedamp.models.traces import Untouched


class _Linear(nn.Linear):
    """n linear layers: `(B, n in) -> (B, n out)`, weights `(n, out, in)`."""

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            raise NotImplementedError(f"a linear layer on samples of {x.ndim - 1} axes")
        apart = torch.unflatten(x, 1, (len(self.weight), -1)).transpose(0, 1)
        weight = self.weight.transpose(1, 2)
        out = torch.bmm(apart, weight) if self.bias is None else torch.baddbmm(self.bias[:, None], apart, weight)
        return out.transpose(0, 1).flatten(1)


class _Conv2d(nn.Conv2d):
    """n convolutions: `(B, n in, H, W) -> (B, n out, H', W')`, weights `(n, out, in, h, w)`."""

    def forward(self, x: Tensor) -> Tensor:
        if self._products_pay(x):
            return self._as_products(x)
        weight = self.weight.flatten(0, 1)
        bias = None if self.bias is None else self.bias.flatten()
        if x.is_cuda:  # a client's channels are then neighbours in memory: several times faster
            x = x.contiguous(memory_format=torch.channels_last)
            weight = weight.contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups * len(self.weight))

    def _products_pay(self, x: Tensor) -> bool:
        # Grouped convolutions of one or two channels are slow on a GPU; written out as products they are fast in bf16,
        # on the first layer, whose inputs need no gradient.
        few = self.groups == 1 and self.dilation == (1, 1) and math.prod(self.weight.shape[2:]) <= 64
        short = x.dtype == torch.float32 and torch.is_autocast_enabled("cuda")
        return x.is_cuda and short and few and not x.requires_grad

    def _as_products(self, x: Tensor) -> Tensor:
        """Return the convolution as n products of patches `(n, B H' W', in h w)` and weights."""
        n, inner = len(self.weight), math.prod(self.weight.shape[2:])
        up, left = (0, 0) if isinstance(self.padding, str) else self.padding  # the one word left is "valid"
        height, width = self.kernel_size
        padded = torch.unflatten(F.pad(x.to(torch.bfloat16), (left, left, up, up)), 1, (n, -1))
        seen = padded.unfold(3, height, self.stride[0]).unfold(4, width, self.stride[1])  # (B, n, in, H', W', h, w)
        seen = seen.permute(1, 0, 3, 4, 2, 5, 6)
        shape, short = seen.shape[:4], -inner % 8  # the matrix units take multiples of 8
        patches = seen.new_zeros((*shape, inner + short))
        torch.unflatten(patches[..., :inner], -1, seen.shape[4:]).copy_(seen)
        weight = F.pad(self.weight.flatten(2), (0, short)).transpose(1, 2)
        out = torch.bmm(patches.flatten(1, 3), weight)
        if self.bias is not None:
            out = out + self.bias[:, None].to(out.dtype)
        return torch.unflatten(out, 1, shape[1:]).permute(1, 2, 3, 0, 4).flatten(3).permute(0, 3, 1, 2)


class _PooledConv2d(_Conv2d):
    """n convolutions, each with the ReLU and the max pool that follow it."""

    pool: nn.MaxPool2d

    def forward(self, x: Tensor) -> Tensor:
        # The ReLU comes last: max(relu(x)) = relu(max(x)), and the gradients are the same too, but there are only a
        # quarter of the values to go through for a window of 2 x 2.
        return F.relu(self.pool(super().forward(x)))


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
        return torch.unflatten(x, 1, (-1, *rest))


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
    if hooked or constant or "forward" in vars(part):  # a forward of this very object is not its kind's
        return False
    if isinstance(part, nn.Flatten):
        return (part.start_dim, part.end_dim) == (1, -1)
    if isinstance(part, nn.Unflatten):
        return part.dim == 1 and -1 not in part.unflattened_size
    if isinstance(part, nn.Conv2d):
        return part.padding_mode == "zeros" and part.padding != "same"
    if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
        return part.momentum is not None and part.track_running_stats == (part.running_mean is not None)
    return True


def _join(layers: nn.Sequential, once: Collection[nn.Module]) -> None:
    """Let convolutions take over the ReLU and the max pool that follow them, where they are used once."""
    for i in range(len(layers) - 2):
        conv, relu, pool = layers[i], layers[i + 1], layers[i + 2]
        if (
            conv in once
            and type(conv) is nn.Conv2d
            and type(relu) is nn.ReLU
            and type(pool) is nn.MaxPool2d
            and not pool.return_indices
        ):
            conv.__class__ = _PooledConv2d
            object.__setattr__(conv, "pool", pool)  # not as a part of its own: names stay what they are
            layers[i + 1] = layers[i + 2] = nn.Identity()


class StackedModule:
    """A module of known layers, as a function of n clients' parameters and inputs.

    A module of one's own may stand among the layers where it says `side_by_side = True`: it promises that its
    `forward` does nothing but call its layers and combine what they return element by element.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = self.compiled = copy.deepcopy(module)
        self._modes = Modes(self.module)
        places = [part for _, part in self.module.named_modules(remove_duplicate=False)]
        once = {part for part in places if places.count(part) == 1}
        for part in list(self.module.modules()):
            if type(part) is nn.Sequential:
                _join(part, once)
            part.__class__ = _WITH_CLIENTS.get(type(part), type(part))
        self._untouched = Untouched(self.module)

    @classmethod
    def of(cls, module: nn.Module) -> StackedModule | None:
        """Return the module for n clients, or None where it has a layer that is not known here."""
        kinds = _WITH_CLIENTS.keys() | _AS_THEY_ARE
        for part in module.modules():
            own = vars(type(part)).get("side_by_side") is True and not part._parameters and not part._buffers
            if not (own or type(part) in kinds) or not _known(part):
                return None
        return cls(module)

    def compile(self, wanted: bool) -> None:
        """Let torch.compile make fewer and larger kernels of the training pass; some seconds for each new shape."""
        self.compiled = self.module
        if wanted:
            from torch import _dynamo as dynamo  # seconds that only those who compile should wait

            # Every shape is compiled once. torch stops at 8, for code that is compiled over and over by mistake.
            dynamo.config.recompile_limit = max(64, dynamo.config.recompile_limit)
            self.compiled = copy.deepcopy(self.module)
            self._modes.set_copy(self.compiled, training=True)  # it is for training passes alone
            self.compiled.compile(dynamic=False)

    def __call__(self, values: Mapping[str, Tensor], x: Tensor, training: bool) -> Tensor:
        """Return outputs `(n, B, k)` for inputs `(n, B, ...)`; buffers among the values, `(n, ...)`, move in place."""
        self._modes.set(training)
        beside = x.transpose(0, 1).flatten(1, 2)
        with self._untouched.kept():
            output: Tensor = functional_call(self.compiled if training else self.module, dict(values), (beside,))
        return torch.unflatten(output, 1, (len(x), -1)).transpose(0, 1)
