"""Clients side by side in the channels: the same numbers as vmap, layer by layer, and nothing that is not known."""

import pytest
import torch
from torch import nn
from torch.func import vmap

from fedamp import kernels, models
from fedamp.models.flat_model import FlatModel
from fedamp.models.zoo import cnn_small
from fedamp.training.stacked.gradients import Gradients
from fedamp.training.tasks_and_metrics import CLASSIFICATION

SHAPES = {"logistic": (5,), "mlp": (8, 8), "cnn-small": (8, 8), "cnn": (1, 8, 8), "resnet18": (3, 8, 8)}

LAYERS = {
    "norms": nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), nn.BatchNorm2d(4), nn.GELU(), nn.AvgPool2d(2), nn.Flatten()
    ),
    "no-affine": nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, affine=False), nn.Tanh(), nn.Flatten()),
    "no-statistics": nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten()),
    "pool": nn.Sequential(
        nn.Conv2d(2, 4, 3, padding="valid", dilation=2, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
    ),
    "vectors": nn.Sequential(nn.Flatten(), nn.Linear(128, 6, bias=False), nn.BatchNorm1d(6), nn.LeakyReLU()),
}


def stack(module: nn.Module, n: int = 3) -> tuple[FlatModel, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = FlatModel(module.double())
    row = model.row()
    params = row.params.repeat(n, 1)
    return model, params + 0.1 * torch.randn_like(params), row.buffers.repeat(n, 1) + torch.rand(n, model.num_buffers)


def assert_both_equal(model: FlatModel, params, buffers, x) -> None:
    """Outputs, buffers after the pass and gradients are those of vmap."""
    assert model.side_by_side
    n, batch = x.shape[:2]
    for training in (True, False):
        expected = vmap(lambda p, b, x, training=training: model(p, b, x, training))(params, buffers, x)
        for mine, theirs in zip(model.stacked(params, buffers, x, training), expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)
    gradients = Gradients(model, CLASSIFICATION)
    y = torch.randint(model.stacked(params, buffers, x, False)[0].shape[-1], (n, batch))
    keys = torch.zeros((n, 2), dtype=torch.int32)
    expected = gradients._vmapped(params, buffers, x, y, keys, 1)
    for mine, theirs in zip(gradients(params, buffers, x, y, keys, 1), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "resnet18" else ()) for name in sorted(SHAPES)]
)
def test_every_shipped_model(name):
    shape = SHAPES[name]
    model, params, buffers = stack(models.build(models.MODELS[name], shape, 4, seed=0))
    assert_both_equal(model, params, buffers, torch.randn(3, 5, *shape, dtype=torch.float64))


def test_the_small_net_with_batch_norm():
    model, params, buffers = stack(models.build(cnn_small, (8, 8), 4, seed=0, norm=True))
    assert model.num_buffers > 0
    assert_both_equal(model, params, buffers, torch.randn(3, 5, 8, 8, dtype=torch.float64))


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer(name):
    model, params, buffers = stack(LAYERS[name])
    assert_both_equal(model, params, buffers, torch.randn(3, 5, 2, 8, 8, dtype=torch.float64))


def test_one_client():
    model, params, buffers = stack(LAYERS["norms"], n=1)
    assert_both_equal(model, params, buffers, torch.randn(1, 4, 2, 8, 8, dtype=torch.float64))


class MixesSamples(nn.Module):
    """Whoever stands beside a sample matters here."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(x - x.mean())


class Promises(nn.Module):
    side_by_side = True

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.one(x) * torch.sigmoid(self.two(x))


def test_a_module_that_promises_is_taken():
    model, params, buffers = stack(Promises())
    assert_both_equal(model, params, buffers, torch.randn(3, 5, 4, dtype=torch.float64))


def frozen() -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.bias.requires_grad_(False)
    return layer


def hooked() -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.register_forward_hook(lambda module, args, out: out)
    return layer


@pytest.mark.parametrize(
    "module",
    [
        MixesSamples(),
        type("Child", (Promises,), {})(),  # a promise is not inherited: `forward` may be another
        nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)),
        nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)),
        nn.Sequential(nn.Flatten(2), nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None)),
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"),
        nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)),
        frozen(),
        hooked(),
    ],
    ids=lambda module: type(module).__name__,
)
def test_what_is_not_known_is_left_to_vmap(module):
    assert not FlatModel(module).side_by_side


def test_the_original_module_is_not_touched():
    module = cnn_small((8, 8), 3)
    kinds = [type(part) for part in module.modules()]
    model = FlatModel(module)
    assert [type(part) for part in module.modules()] == kinds
    assert [type(part) for part in model.module.modules()] == kinds


class Listed(nn.Module):
    """Its layers stand in a plain list too, through which they are called."""

    side_by_side = True

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 3), nn.Linear(3, 3)
        self.order = [self.one, self.two, self.two]

    def forward(self, x):
        for layer in self.order:
            x = torch.tanh(layer(x))
        return x


def test_layers_are_replaced_wherever_they_stand():
    model, params, buffers = stack(Listed())
    assert_both_equal(model, params, buffers, torch.randn(3, 5, 4, dtype=torch.float64))


@pytest.mark.parametrize(("whole", "last"), [(True, True), (False, False), (True, False)])
def test_parts_at_rest_stay_at_rest(whole, last):
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 3), nn.ReLU(), nn.MaxPool2d(2))
    module = nn.Sequential(module, nn.Flatten(), nn.BatchNorm1d(8))
    module.train(whole)
    module[2].train(last)
    model, params, buffers = stack(module)
    assert_both_equal(model, params, buffers, torch.randn(3, 5, 2, 8, 8, dtype=torch.float64))


def test_pools_of_two_by_two_with_a_bias_are_one_kernel_where_there_are_kernels(monkeypatch):
    def net(**changes):
        conv = nn.Conv2d(1, 2, 3, bias=changes.pop("bias", True))
        return FlatModel(nn.Sequential(conv, nn.ReLU(), nn.MaxPool2d(2, **changes), nn.Flatten(), nn.Linear(18, 2)))

    x = torch.zeros(1, 1, 8, 8)
    assert not net().pools_in_one(x)
    monkeypatch.setattr(kernels, "usable", lambda x: True)
    assert net().pools_in_one(x)
    assert not net(bias=False).pools_in_one(x)
    assert not net(stride=1).pools_in_one(x)
    assert not FlatModel(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())).pools_in_one(x)
