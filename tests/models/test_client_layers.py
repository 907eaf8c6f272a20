"""Layers for n clients, one by one."""

import pytest
import torch
from torch import nn

from fedamp.models.client_layers import ClientConv2d


@pytest.mark.parametrize(("stride", "padding", "bias"), [(1, 2, True), (2, 1, False), (1, "valid", True)])
def test_a_convolution_as_products(stride, padding, bias):
    conv = ClientConv2d(nn.Conv2d(2, 8, 3, stride, padding, bias=bias))
    conv.weight = nn.Parameter(torch.randn(3, *conv.weight.shape))
    if bias:
        conv.bias = nn.Parameter(torch.randn(3, 8))
    x = torch.randn(4, 6, 9, 9)
    expected = conv(x)
    with torch.autocast("cpu", torch.bfloat16):
        out = conv.as_products(x)
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.15)  # bf16 has 8 bits


@pytest.mark.parametrize(("stride", "bias"), [(1, True), (2, False), ((1, 3), True)])
def test_a_convolution_of_single_places_as_products(stride, bias):
    conv = ClientConv2d(nn.Conv2d(4, 6, 1, stride, bias=bias)).double()
    weight = torch.randn(3, *conv.weight.shape, dtype=torch.float64, requires_grad=True)
    conv.weight, conv.bias = (
        nn.Parameter(weight),
        nn.Parameter(torch.randn(3, 6, dtype=torch.float64)) if bias else None,
    )
    x = torch.randn(5, 12, 7, 8, dtype=torch.float64, requires_grad=True)
    flat = None if conv.bias is None else conv.bias.flatten()
    ways = [conv.pointwise(x, flat), conv(x)]
    torch.testing.assert_close(*ways, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(y.square().sum(), [x, *conv.parameters()]) for y in ways]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-11)
