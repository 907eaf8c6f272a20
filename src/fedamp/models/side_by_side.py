"""One pass of a module for n clients at once: clients are side by side in the channels.

The inputs of n clients, `(n, B, C, ...)`, become one batch `(B, n C, ...)` in which a client's channels are neighbours.
Then a convolution of all clients is one grouped convolution, BatchNorm over n C channels is each client's own, a
linear layer is a batched product, and whatever treats channels separately (pooling, ReLU) needs no change at all. The
numbers are those of vmap; there are no axes to be moved about between layers, and no slow path.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedamp.models.client_layers import AS_THEY_ARE, FOR_CLIENTS, ClientPooledConv2d
from fedamp.models.cutting import cut
from fedamp.models.left_behind import Untouched
from fedamp.models.train_modes import Modes


class StackedModule:
    """A module of known layers, as a function of n clients' rows and inputs.

    A user's own module may be among the layers if its class says `side_by_side = True`: it promises that its
    `forward` does nothing but call its layers and combine what they return element by element.
    """

    def __init__(self, module: nn.Module, shapes: Mapping[str, torch.Size]) -> None:
        self.module, self.shapes = _for_clients(module), shapes
        self.plain = self.compiled = _OfRows(self.module, shapes)
        self._modes = Modes(self.module)
        self._untouched = Untouched(self.module)

    @classmethod
    def of(cls, module: nn.Module, shapes: Mapping[str, torch.Size]) -> StackedModule | None:
        """Return the module for n clients, or None if it has a layer that is not known here.

        `shapes` are those of the values in a row, by name and in the row's order.
        """
        kinds = FOR_CLIENTS.keys() | AS_THEY_ARE
        for part in module.modules():
            own = vars(type(part)).get("side_by_side") is True and not part._parameters and not part._buffers
            if not (own or type(part) in kinds) or not _known(part):
                return None
        return cls(module, shapes)

    def compile(self, wanted: bool) -> None:
        """Let torch.compile make fewer and larger kernels of the training pass; some seconds for each new shape."""
        self.compiled = self.plain
        if wanted:
            from torch import _dynamo as dynamo  # seconds that only those who compile should wait

            # Every shape is compiled once. torch stops at 8, for code that is compiled over and over by mistake.
            dynamo.config.recompile_limit = max(64, dynamo.config.recompile_limit)
            module = copy.deepcopy(self.module)
            self._modes.set_copy(module, training=True)  # it is for training passes alone
            self.compiled = _OfRows(module, self.shapes)
            self.compiled.compile(dynamic=False)

    def pools_in_one(self, x: Tensor) -> bool:
        """Return whether there are convolutions with a pool, and bias, pool and ReLU of all of them are one kernel."""
        pools = [part for part in self.module.modules() if isinstance(part, ClientPooledConv2d)]
        return bool(pools) and all(part.pools_in_one(x) for part in pools)

    def __call__(self, rows: Tensor, carried: Mapping[str, Tensor], x: Tensor, training: bool) -> Tensor:
        """Return outputs `(n, B, k)` for rows `(n, d)` and inputs `(n, B, ...)`; buffers `(n, ...)` move in place."""
        self._modes.set(training)
        beside = x.transpose(0, 1).flatten(1, 2)
        with self._untouched.kept():
            output: Tensor = (self.compiled if training else self.plain)(rows, dict(carried), beside)
        return torch.unflatten(output, 1, (len(x), -1)).transpose(0, 1)


class _OfRows(nn.Module):
    """A module for n clients at their rows.

    Rows are cut in here, so that a compiled pass writes the gradients of all layers to where they are in a row.
    """

    def __init__(self, module: nn.Module, shapes: Mapping[str, torch.Size]) -> None:
        super().__init__()
        self.module, self.shapes = module, shapes

    def forward(self, rows: Tensor, carried: Mapping[str, Tensor], beside: Tensor) -> Tensor:
        """Return outputs for inputs side by side, `(B, n C, ...)`."""
        output: Tensor = functional_call(self.module, {**cut(rows, self.shapes), **carried}, (beside,))
        return output


def _known(part: nn.Module) -> bool:
    """Whether a module does the same to a client's channels, whoever is beside it."""
    hooked = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
    constant = any(not p.requires_grad for p in part.parameters(recurse=False)) or part._non_persistent_buffers_set
    if hooked or constant or "forward" in vars(part):  # the object has a forward of its own, not that of its class
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


def _for_clients(module: nn.Module) -> nn.Module:
    """Return a copy of a module of known layers in which each has its form for n clients."""
    own = copy.deepcopy(module)
    places = [part for _, part in own.named_modules(remove_duplicate=False)]
    once = {part for part in places if places.count(part) == 1}
    layers: dict[nn.Module, nn.Module] = {}
    for part in list(own.modules()):
        if type(part) is nn.Sequential:
            layers |= _joined(part, once)
    for part in own.modules():
        if type(part) in FOR_CLIENTS and part not in layers:
            layers[part] = FOR_CLIENTS[type(part)](part)
    for part, layer in layers.items():
        layer.train(part.training)
    # A copy in which every reference to a layer, wherever it is, leads to the layer's new form.
    return copy.deepcopy(own, {id(part): layer for part, layer in layers.items()})


def _joined(layers: nn.Sequential, once: Collection[nn.Module]) -> dict[nn.Module, nn.Module]:
    """Return the convolutions that take over the ReLU and the max pool after them, if they are used once.

    Nothing is left to do in the places of the two; names stay what they are.
    """
    joined: dict[nn.Module, nn.Module] = {}
    for i in range(len(layers) - 2):
        conv, relu, pool = layers[i], layers[i + 1], layers[i + 2]
        if (
            conv in once
            and type(conv) is nn.Conv2d
            and type(relu) is nn.ReLU
            and type(pool) is nn.MaxPool2d
            and not pool.return_indices
        ):
            joined[conv] = ClientPooledConv2d(conv, pool)
            layers[i + 1] = nn.Identity().train(relu.training)
            layers[i + 2] = nn.Identity().train(pool.training)
    return joined
