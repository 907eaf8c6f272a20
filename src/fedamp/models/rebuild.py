"""A module as plain data and back: the names and options of torch's own layers, enough to build it elsewhere."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedamp.models.dropout import own_stream

Layer = tuple[str, dict[str, Any]]
"""The name of a layer in torch.nn, and the options of its constructor."""

PROBES = 8
PROBE_SCALES = (0.1, 1.0, 10.0)
"""A rebuilt module must give the original's outputs on this many random samples, at each of these scales."""


def build_layers(layers: Sequence[Layer]) -> nn.Sequential:
    """Return the module that `describe_layers` described, with fresh values. docs/use.md shows the same line."""
    return nn.Sequential(*[getattr(nn, name)(**options) for name, options in layers])


def rebuilds(
    layers: Sequence[Layer], state: Mapping[str, Tensor], original: nn.Module, input_shape: Sequence[int]
) -> bool:
    """Return whether layers and a state dict give the original's outputs: in float64, on random inputs."""
    stream = torch.Generator().manual_seed(0)
    with own_stream(0, torch.device("cpu")), torch.no_grad():
        try:
            built = build_layers(layers)
            built.load_state_dict(state)
            modules = [module.double().eval() for module in (built, original)]
            for scale in PROBE_SCALES:
                x = scale * torch.randn(PROBES, *input_shape, generator=stream, dtype=torch.float64)
                if not _same(*(module(x.clone()) for module in modules)):
                    return False
        except Exception:  # a layer that takes words instead of numbers, say: then nothing is proved
            return False
    return True


def _same(theirs: Tensor, ours: Tensor) -> bool:
    """Whether two outputs are equal; nan, which proves nothing, never is."""
    return theirs.shape == ours.shape and torch.allclose(theirs, ours, rtol=1e-9, atol=1e-12)


def describe_layers(module: nn.Module) -> list[Layer] | None:
    """Return a plain sequence of torch's own layers as names and options; None if the module is more than that.

    The options are those of each layer's constructor that differ from their defaults. Whether they say everything
    about the module is for `rebuilds` to find out.
    """
    if type(module) is not nn.Sequential or _changed(module):
        return None
    described = [_describe(layer) for layer in module]
    return None if None in described else [layer for layer in described if layer is not None]


def _describe(layer: nn.Module) -> Layer | None:
    """Return a layer's name and options; None if they do not say everything, or are not plain values."""
    kind, options = type(layer), {}
    if getattr(nn, kind.__name__, None) is not kind or list(layer.children()) or _changed(layer):
        return None
    for name, parameter in inspect.signature(kind).parameters.items():
        hidden = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if hidden or name in ("device", "dtype"):  # nothing to keep, or known from the state dict
            continue
        value = _has_bias(layer) if name == "bias" else getattr(layer, name, _Missing)
        if not _is_plain(value):
            return None
        if not _is_default(value, parameter.default):
            options[name] = value
    return kind.__name__, options


class _Missing:
    """In place of an option that the layer does not keep."""


def _changed(part: nn.Module) -> bool:
    """Whether this object does something other than its class: it has hooks, or a method of its own."""
    own = any(callable(getattr(type(part), name, None)) for name in vars(part))
    return own or bool(part._forward_hooks or part._forward_pre_hooks)


def _has_bias(layer: nn.Module) -> bool:
    # A norm without weights has no bias either, and another option says so.
    return layer.bias is not None or layer.weight is None


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a value and give it back."""
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _is_default(value: Any, default: Any) -> bool:
    """Whether the constructor makes this value by itself; some turn 1 into (1, 1)."""
    return bool(value == default) or (isinstance(value, tuple) and all(item == default for item in value))
