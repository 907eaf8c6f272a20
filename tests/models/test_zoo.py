"""The shipped networks have the sizes, shapes and layers that their sources give them."""

import pytest
import torch
from torch import nn

from fedamp.models import MODELS, build
from fedamp.models.flat_model import FlatModel
from fedamp.models.zoo import cnn, cnn_small, logistic, mlp, resnet18
from fedamp.rows import Rows


def num_parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("builder", "shape", "outputs", "expected"),
    [
        (logistic, (8, 8), 10, 650),
        (mlp, (8, 8), 10, 64 * 64 + 64 + 650),
        (cnn_small, (8, 8), 10, 160 + 4640 + 128 * 64 + 64 + 650),
        (cnn, (1, 28, 28), 10, 1_663_370),  # McMahan et al. 2017, section 3
        (resnet18, (3, 32, 32), 100, 11_220_132),
    ],
)
def test_number_of_parameters(builder, shape, outputs, expected):
    assert num_parameters(builder(shape, outputs)) == expected


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (3, 9, 11)])
def test_output_is_one_row_a_sample(name, shape):
    module = build(MODELS[name], shape, 5, seed=0)
    assert module(torch.randn(4, *shape)).shape == (4, 5)


@pytest.mark.parametrize("name", ["cnn-small", "cnn", "resnet18"])
def test_a_channel_axis_changes_nothing_for_grey_pictures(name):
    x = torch.randn(2, 8, 8)
    without, with_axis = build(MODELS[name], (8, 8), 3, seed=0), build(MODELS[name], (1, 8, 8), 3, seed=0)
    assert torch.equal(without.eval()(x), with_axis.eval()(x[:, None]))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_a_function_of_rows_alone_or_side_by_side(name):
    # In float64: BatchNorm over three values of one pixel turns float32's rounding into visible differences.
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 8, 8, generator=g, dtype=torch.float64)  # 2 clients, 3 samples each
    modules = [build(MODELS[name], (8, 8), 4, seed=0, client=i).double() for i in range(2)]
    model = FlatModel(modules[0])
    assert model.num_params == num_parameters(modules[0])
    w = Rows.cat([model.row(module) for module in modules])

    def loss(params, buffers, x):
        output, buffers = model(params, buffers, x, True)
        return (output**2).mean(), (output, buffers)

    step = torch.func.grad(loss, has_aux=True)
    gradients, (outputs, buffers) = torch.vmap(step)(w.params, w.buffers, x)
    for i, module in enumerate(modules):
        gradient, (output, after) = step(w.params[i], w.buffers[i], x[i])
        assert torch.equal(output, module(x[i]))
        for got, expected in ((outputs, output), (buffers, after), (gradients, gradient)):
            torch.testing.assert_close(got[i], expected, rtol=1e-9, atol=1e-9)


def test_resnet_has_18_layers_a_small_stem_and_no_bias_before_batch_norm():
    module = resnet18((3, 32, 32), 10)
    assert all(layer.bias is None for layer in module.modules() if isinstance(layer, nn.Conv2d))
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in module.modules()) == 18 + 3  # 3 projections
    strides = [layer.stride for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    assert strides[0] == (1, 1)
    assert strides.count((2, 2)) == 6
    assert not any(isinstance(layer, nn.MaxPool2d) for layer in module.modules())
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in cnn_small((8, 8), 10).modules())


def test_a_small_net_with_batch_norm():
    plain, normed = cnn_small((8, 8), 10), cnn_small((8, 8), 10, norm=True)
    convolutions = [layer for layer in normed.modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.bias for layer in convolutions] == [None, None]  # the BatchNorm after it would subtract it again
    after = [list(normed)[list(normed).index(layer) + 1] for layer in convolutions]
    assert [(type(layer), layer.num_features) for layer in after] == [(nn.BatchNorm2d, 16), (nn.BatchNorm2d, 32)]
    assert num_parameters(normed) == num_parameters(plain) + 16 + 32  # two for each channel, instead of a bias
    with pytest.raises(ValueError, match="norm is 'yes'; expected true or false"):
        cnn_small((8, 8), 10, norm="yes")


def test_a_small_net_without_it_is_what_it_was():
    def written_out(input_shape, num_outputs):
        return nn.Sequential(
            *(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, num_outputs)),
        )

    ours, before = (build(builder, (8, 8), 10, seed=3) for builder in (cnn_small, written_out))
    assert str(ours) == str(before)
    assert torch.equal(FlatModel(ours).row().params, FlatModel(before).row().params)


def test_a_residual_block_is_the_identity_where_its_branch_is_zero():
    block = resnet18((8, 8), 10)[5]
    nn.init.zeros_(block.norm2.weight)
    x = torch.randn(2, 64, 8, 8)
    assert torch.equal(block(x), x.relu())


@pytest.mark.parametrize(
    ("builder", "fits", "too_small"),
    [
        (cnn_small, (4, 5), (3, 8)),
        (cnn, (3, 4, 4), (3, 8, 3)),
        (resnet18, (8, 8), (3, 7, 8)),
    ],
)
def test_pictures_can_be_too_small(builder, fits, too_small):
    assert builder(fits, 2)(torch.randn(2, *fits)).shape == (2, 2)
    message = rf"{builder.__name__.replace('_', '-')} .* \({', '.join(map(str, too_small))}\).* smallest allowed is "
    with pytest.raises(ValueError, match=message + f"{min(fits[-2:])} x {min(fits[-2:])};"):
        builder(too_small, 2)


@pytest.mark.parametrize("builder", [cnn_small, cnn, resnet18])
@pytest.mark.parametrize("shape", [(64,), (1, 3, 8, 8)])
def test_convolutions_want_pictures(builder, shape):
    with pytest.raises(ValueError, match=r"shape \(.*expected pictures, \(height, width\) or"):
        builder(shape, 2)


@pytest.mark.parametrize("builder", MODELS.values())
@pytest.mark.parametrize("shape", [(), (8, 0), (8, 8.0), (8, -1)])
def test_input_shape_is_checked(builder, shape):
    with pytest.raises(ValueError, match=r"input_shape is \(.*expected the shape of one sample"):
        builder(shape, 2)
    with pytest.raises(ValueError, match=r"input_shape is \(.*expected the shape of one sample"):
        build(builder, shape, 2, seed=0)
