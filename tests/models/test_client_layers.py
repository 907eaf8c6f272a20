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
