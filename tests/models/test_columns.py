"""Which columns belong to which layers: told by changing a layer and looking at what has changed in the row."""

import pytest
import torch
from torch import nn

from fedamp.errors import UserError
from fedamp.models.columns import head, norm
from fedamp.models.flat_model import FlatModel
from fedamp.models.zoo import MODELS


class Branches(nn.Module):
    """Layers inside layers, a normalisation at the end, a parameter of the module's own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        self.scale = nn.Parameter(torch.ones(3))
        self.out = nn.Linear(3, 2)
        self.last = nn.LayerNorm(2)

    def forward(self, x):
        return self.last(self.out(self.body(x) * self.scale))


def changed(module: nn.Module, *layers: nn.Module) -> tuple[list[bool], list[bool]]:
    """Return which columns of parameters and buffers change with these layers."""
    model = FlatModel(module)
    before = model.row()
    with torch.no_grad():
        for layer in layers:
            for value in (*layer.parameters(), *layer.buffers()):
                value.add_(1)
    after = model.row(module)
    return (before.params != after.params)[0].tolist(), (before.buffers != after.buffers)[0].tolist()


def masks(columns):
    return columns.params.tolist(), columns.buffers.tolist()


@pytest.mark.parametrize(("layers", "begins"), [(1, 6), (2, 3), (3, 0), (9, 0)])
def test_the_head_is_the_last_layers_and_what_follows_them(layers, begins):
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(),
        nn.Linear(3, 2), nn.ReLU(),
    )  # fmt: skip
    assert masks(head(FlatModel(module), layers)) == changed(module, *list(module)[begins:])


def test_no_layers_have_no_columns_and_a_negative_number_is_refused():
    model = FlatModel(Branches())
    assert not head(model, 0).params.any()
    assert not head(model, 0).buffers.any()
    with pytest.raises(UserError, match="the head has -1 layers; expected 0 or more"):
        head(model, -1)


def test_layers_inside_layers():
    module = Branches()
    assert masks(head(FlatModel(module), 1)) == changed(module, module.out, module.last)
    module = Branches()
    assert masks(norm(FlatModel(module))) == changed(module, module.body[1], module.last)


def test_a_model_without_normalisation_has_no_such_columns():
    found = norm(FlatModel(MODELS["cnn-small"]((8, 8), 10)))
    assert not found.params.any()
    assert found.buffers.shape == (0,)


def test_what_is_frozen_has_no_columns():
    module = Branches()
    module.out.requires_grad_(False)
    model = FlatModel(module)
    columns = head(model, 1)
    assert columns.params.shape == (model.num_params,)
    # `out` is no layer any more: the last one with weights that are learned is the linear layer in `body`.
    assert columns.params.sum() == model.num_params - 3  # all but `scale`, which the module itself has


@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn-small", "cnn", "resnet18"])
def test_the_zoos_heads_are_their_last_linear_layers(name):
    module = MODELS[name]((8, 8), 10)
    last = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
    columns = head(FlatModel(module), 1)
    assert columns.params.sum() == last.weight.numel() + last.bias.numel()
    assert columns.params[-10:].all()


def test_a_parametrized_layer_is_one_layer():
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))
    model = FlatModel(module)
    home = {name for name, at in _names(model) if head(model, 1).params[at]}
    assert home == {name for name in model.params if name.startswith("2.")}
    assert len(home) == 3


def _names(model):
    """Yield each parameter's name and the position of its first column."""
    begin = 0
    for name, value in model.params.items():
        yield name, begin
        begin += value.numel()


def test_a_model_in_which_only_normalisations_learn_has_no_head():
    module = nn.Sequential(nn.Linear(4, 3).requires_grad_(False), nn.BatchNorm1d(3))
    columns = head(FlatModel(module), 1)
    assert not columns.params.any()
    assert columns.params.shape == (6,)
