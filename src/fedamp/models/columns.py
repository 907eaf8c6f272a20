"""Which columns of a row belong to which layers: a model's head, its normalisations."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from fedamp.errors import UserError
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Columns

NORMS = (
    nn.modules.batchnorm._NormBase,  # BatchNorm and InstanceNorm of all dimensions
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)


def head(model: FlatModel, layers: int) -> Columns:
    """Return the columns of the last so many layers with weights, and of all that comes after them.

    Layers are in the order in which the module registers them, which for nearly all modules is the order in which
    they compute.
    """
    if layers < 0:
        raise UserError(f"the head has {layers} layers; expected 0 or more")
    named = dict(model.module.named_modules())
    weighted = [name for name, part in named.items() if not isinstance(part, NORMS) and _own(name, model.params)]
    begin = list(named).index(weighted[max(0, len(weighted) - layers)]) if layers and weighted else len(named)
    return _columns(model, set(list(named)[begin:]).__contains__)


def norm(model: FlatModel) -> Columns:
    """Return the columns of the normalisations."""
    found = {name for name, part in model.module.named_modules() if isinstance(part, NORMS)}
    return _columns(model, found.__contains__)


def _columns(model: FlatModel, wanted: Callable[[str], bool]) -> Columns:
    return Columns(_mask(model.params, wanted), _mask(model.buffers, wanted))


def _mask(values: Mapping[str, Tensor], wanted: Callable[[str], bool]) -> Tensor:
    parts = [torch.full((value.numel(),), wanted(_layer(name))) for name, value in values.items()]
    return torch.cat([*parts, torch.empty(0, dtype=torch.bool)])


def _own(layer: str, names: Iterable[str]) -> bool:
    """Return whether a layer has a value of its own, not one of a layer inside it."""
    return any(_layer(name) == layer for name in names)


def _layer(name: str) -> str:
    """Return the layer that a value belongs to, by the value's name; one with `weight_norm` is still one layer."""
    layer, parametrized, _ = name.partition(".parametrizations.")
    return layer if parametrized else name.rpartition(".")[0]
