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


SHAPES = [
    *((1, 1, 0), (1, 2, 0), (1, (1, 3), 0), (1, 2, 1)),
    *((3, 1, 1), (3, 2, 1), (3, 2, "valid"), ((2, 3), (1, 2), (0, 1))),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "padding"), SHAPES)
def test_a_convolution_in_windows(kernel, stride, padding, bias):
    conv = ClientConv2d(nn.Conv2d(4, 6, kernel, stride, padding, bias=bias)).double()
    conv.weight = nn.Parameter(torch.randn(3, *conv.weight.shape, dtype=torch.float64))
    conv.bias = nn.Parameter(torch.randn(3, 6, dtype=torch.float64)) if bias else None
    x = torch.randn(5, 12, 7, 8, dtype=torch.float64, requires_grad=True)
    flat = None if conv.bias is None else conv.bias.flatten()
    ways = [conv.in_windows(x, flat), conv.grouped(x, flat)]
    torch.testing.assert_close(*ways, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(y.square().sum(), [x, *conv.parameters()]) for y in ways]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-11)


def in_windows(conv: nn.Conv2d, clients: int, compiling: bool, short: bool, monkeypatch) -> bool:
    own = ClientConv2d(conv)
    own.weight = nn.Parameter(conv.weight.detach().expand(clients, *conv.weight.shape))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: short)
    return own._windows_pay()


def test_when_windows_pay(monkeypatch):
    compiled, plain = (True, True, monkeypatch), (False, True, monkeypatch)
    for conv in (nn.Conv2d(8, 4, 3, 2, 1), nn.Conv2d(512, 4, 3, 1, 1)):
        assert in_windows(conv, 2, *compiled)
        assert not in_windows(conv, 2, *plain)
        assert not in_windows(conv, 2, True, False, monkeypatch)  # not in short numbers
        assert not in_windows(conv, 1, *compiled)  # one group is no grouped convolution
    assert in_windows(nn.Conv2d(8, 4, 1), 2, *plain)
    assert not in_windows(nn.Conv2d(8, 4, 1), 1, *plain)
    for conv in (
        nn.Conv2d(8, 4, 3, 1, 1),
        nn.Conv2d(8, 4, 7, 2, 3),  # 49 places: too much memory
        nn.Conv2d(8, 4, 3, 2, 2, dilation=2),
        nn.Conv2d(8, 4, 3, 2, 1, groups=2),
    ):
        assert not in_windows(conv, 2, *compiled)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile imports what torch calls deprecated
def test_a_compiled_convolution_with_a_stride_is_the_plain_one(monkeypatch):
    conv = ClientConv2d(nn.Conv2d(16, 8, 3, 2, 1, bias=False)).cuda()
    conv.weight = nn.Parameter(torch.randn(3, *conv.weight.shape, device="cuda"))
    x = torch.randn(4, 48, 9, 9, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    expected = conv.double().grouped(x.double(), None)
    conv.float()
    found, windows = [], conv._windows
    monkeypatch.setattr(conv, "_windows", lambda x: (found.append(x.shape), windows(x))[1])
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        out = torch.compile(conv, dynamic=False)(x)
    assert found  # when the pass was traced
    torch.testing.assert_close(out.double(), expected, rtol=0.02, atol=0.15)
