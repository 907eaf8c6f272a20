"""Convolutions as products: the same numbers, and only where they are the same."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, vmap

from fedamp.models import unfolded
from fedamp.models.unfolded import UnfoldedConvolutions, unfolded_conv2d

FORMS = [
    {},
    {"stride": 2},
    {"padding": 1},
    {"padding": (2, 0), "stride": (1, 3)},
    {"dilation": 2},
    {"dilation": (1, 2), "padding": 2, "stride": 2},
]


def tensors(groups=1):
    g = torch.Generator().manual_seed(1)
    shapes = (3, 4, 9, 11), (6, 4 // groups, 3, 2), (6,)
    return [torch.randn(shape, generator=g, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_convolution_is_the_weights_product_with_all_windows(form, biased):
    x, weight, bias = tensors()
    bias = bias if biased else None
    expected = F.conv2d(x, weight, bias, **form)
    torch.testing.assert_close(unfolded_conv2d(x, weight, bias, **form), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_gradients_are_those_of_the_convolution(form):
    inputs = [value.requires_grad_() for value in tensors()]
    found, expected = (
        torch.autograd.grad(function(*inputs, **form).square().sum(), inputs)
        for function in (unfolded_conv2d, F.conv2d)
    )
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_gradients_of_single_samples_are_the_same_under_the_mode_and_it_is_the_product_that_gives_them(monkeypatch):
    module = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 2, 3)).double()
    named = dict(module.named_parameters())
    x = torch.randn(5, 1, 10, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(params, one):
        return torch.func.functional_call(module, params, one[None]).square().sum()

    each = vmap(grad(loss), (None, 0))
    plain, calls = each(named, x), []
    monkeypatch.setattr(unfolded, "unfolded_conv2d", lambda *a, **k: calls.append(1) or unfolded_conv2d(*a, **k))
    with UnfoldedConvolutions():
        found = each(named, x)
    assert len(calls) == 2
    for name, value in plain.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, b: F.conv2d(x, w[:, :2].contiguous(), b, groups=2),
        lambda x, w, b: F.conv2d(x, w[..., :1], b, padding="same"),
        lambda x, w, b: F.conv2d(x[0], w, b),
        lambda x, w, b: F.conv1d(x[:, :, 0], w[:, :, 0], b),
    ],
    ids=["groups", "padding in words", "no batch", "one dimension"],
)
def test_what_is_no_plain_convolution_of_pictures_stays_as_it_is(call, monkeypatch):
    monkeypatch.setattr(unfolded, "unfolded_conv2d", None)
    x, w, b = tensors()
    with UnfoldedConvolutions():
        found = call(x, w, b)
    assert torch.equal(found, call(x, w, b))
