"""A module is a function of one row."""

import pytest
import torch
from torch import nn

from fedamp.errors import UserError
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows


class Tied(nn.Module):
    """A frozen layer, a shared weight, a constant mask, a count: all that a row must treat with care."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.embedding.weight
        self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1), persistent=False)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls = self.calls + 1
        h = self.frozen(self.embedding(x)) @ torch.softmax(self.mask, 1)
        return self.out(self.norm(h))


def test_a_row_goes_there_and_back():
    torch.manual_seed(0)
    module = Tied()
    model = FlatModel(module)
    assert model.num_params == 7 * 4 + 8  # the tied weight once, the frozen layer not at all
    assert model.num_buffers == 4 + 4 + 1 + 1  # mean, variance, two counts
    other = Tied()
    row = model.row(other)
    fresh = Tied()
    fresh.load_state_dict({**fresh.state_dict(), **model.state_dict(row)})
    for (name, a), (_, b) in zip(other.state_dict().items(), fresh.state_dict().items(), strict=True):
        expected = module.state_dict()[name] if name.startswith("frozen") else a
        assert torch.equal(b, expected), name


def test_output_and_buffers_equal_the_modules_own():
    torch.manual_seed(0)
    module = Tied()
    model = FlatModel(module)
    x = torch.randint(7, (6,))
    row = model.row()
    for training in (True, True, False):
        module.train(training)
        expected = module(x)
        output, buffers = model(row.params[0], row.buffers[0], x, training)
        assert torch.equal(output, expected)
        row = Rows(row.params, buffers[None])
        assert torch.equal(row.buffers, model.row(module).buffers)
    assert module.calls == 3


def test_integer_buffers_are_rounded_back():
    model = FlatModel(nn.BatchNorm1d(2))
    rows = Rows.cat([Rows(model.row().params, torch.tensor([[0.0, 0, 1, 1, count]])) for count in (3, 4, 4)])
    mean = rows.mean()
    assert 3 < mean.buffers[0, 4] < 4
    assert model.state_dict(mean)["num_batches_tracked"] == 4
    assert model.state_dict(mean)["num_batches_tracked"].dtype == torch.int64


def test_the_module_given_is_left_alone():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = FlatModel(module)
    row = model.row()
    model(row.params[0], row.buffers[0], torch.randn(4, 2), training=True)
    assert not module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_gradient_of_a_row_with_buffers():
    model = FlatModel(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    row = model.row()
    flat = row.params[0].requires_grad_()
    output, buffers = model(flat, row.buffers[0], torch.randn(5, 2), training=True)
    (gradient,) = torch.autograd.grad((output**3).sum(), flat)
    assert gradient.shape == flat.shape
    assert not buffers.requires_grad


def test_modules_that_can_not_be_rows():
    with pytest.raises(ValueError, match="nothing to train"):
        FlatModel(nn.ReLU())
    with pytest.raises(ValueError, match=r"torch\.float32, torch\.float64; expected one"):
        FlatModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
    lazy = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d())
    with pytest.raises(
        UserError, match=r"values without a shape \(0.weight, 0.bias, 1.weight, \.\.\.\).*call the module"
    ):
        FlatModel(lazy)
    lazy(torch.ones(3, 4))
    assert FlatModel(lazy).num_params == 4 * 2 + 2 + 2 + 2
    module = nn.Linear(2, 2)
    module.register_buffer("mask", torch.tensor([-torch.inf]))
    with pytest.raises(ValueError, match=r"buffer 'mask' of Linear is not finite.*persistent=False"):
        FlatModel(module)
