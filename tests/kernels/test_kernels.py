"""What kernels compute is what torch computes step by step: on a GPU, or in Triton's interpreter."""

import importlib
import os
import sys

import pytest
import torch
import torch.nn.functional as F

from fedamp import kernels
from fedamp.methods.base import proximal
from fedamp.models.client_layers import ClientPooledConv2d
from fedamp.training.optimizers import Optimizer

pytest.importorskip("triton")

NAMES = ("fedamp.kernels.adam", "fedamp.kernels.pool")


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    """Without a GPU, Triton's interpreter stands for it."""
    if torch.cuda.is_available():
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "TRITON_INTERPRET", "1")
        for name in NAMES:
            sys.modules.pop(name, None)
            importlib.import_module(name)
        patch.setattr(kernels, "usable", lambda x: not torch.compiler.is_compiling())
        yield
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("pulled", [True, False])
def test_a_step_of_adam_is_torchs_along_the_gradient_and_the_pull(device, pulled):
    n, d, optimizer = 3, 1500, Optimizer("adam", 1e-2)  # more columns than one program takes
    torch.manual_seed(0)
    w, anchor = torch.randn(n, d, device=device), torch.randn(n, d, device=device)
    strength = torch.tensor([[0.0], [0.5], [30.0]], device=device)
    mine, theirs = w.clone(), w.clone()
    moments, expected = optimizer.init(mine), optimizer.init(theirs)
    pull = {"anchor": anchor, "strength": strength} if pulled else {}
    assert optimizer.steps_in_one(mine)
    for t in range(1, 5):
        gradient = torch.randn(n, d, device=device) * 10.0**-t
        optimizer.step_along(mine, gradient, moments, t, **pull)
        direction = proximal(theirs, lambda point, g=gradient: g.clone(), **pull) if pulled else gradient
        optimizer.step(theirs, direction, expected, t)
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    # On a GPU torch computes 1 - 0.999 in float32, which makes its second moment 1.3e-5 too small.
    torch.testing.assert_close(moments, expected, rtol=2e-5, atol=1e-5)
    assert not torch.equal(mine, w)


def test_a_step_of_adam_is_its_equation_in_float64(device):
    torch.manual_seed(0)
    w, anchor, gradient = torch.randn(3, 2, 1500, device=device)
    strength = torch.tensor([[0.5], [30.0]], device=device)
    first, second = torch.rand(2, 2, 1500, device=device)
    x, a, g, s, m, v = (value.double() for value in (w, anchor, gradient, strength, first, second))
    optimizer, t, (beta1, beta2) = Optimizer("adam", 1e-2), 4, (0.9, 0.999)
    optimizer.step_along(w, gradient, (first, second), t, anchor=anchor, strength=strength)
    g = g + s * (x - a)
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    x = x - 1e-2 * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + 1e-8)
    for mine, exact in ((first, m), (second, v), (w, x)):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("how", [{"weight_decay": 0.1}, {"name": "sgd"}])
def test_other_steps_are_left_to_torch(device, how):
    assert not Optimizer(**how).steps_in_one(torch.zeros(1, 1, device=device))
    assert not Optimizer().steps_in_one(torch.zeros(1, 1, device=device, dtype=torch.float64))


@pytest.mark.parametrize("size", [(6, 4), (7, 5)], ids=str)  # 7 x 5: a row and a column are in no window
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", ["samples first", "clients first"])
def test_pooling_is_bias_then_max_pool_then_relu_and_so_is_its_gradient(device, size, dtype, order):
    torch.manual_seed(1)
    batch, n, channels = 2, 3, 5
    first = (batch, *size, n, channels) if order == "samples first" else (n, batch, *size, channels)
    axes = (0, 3, 4, 1, 2) if order == "samples first" else (1, 0, 4, 2, 3)
    x = torch.randn(first, device=device).round(decimals=1).to(dtype).permute(axes)  # rounded: there are equals
    bias = torch.randn(n, channels, device=device, dtype=torch.promote_types(dtype, torch.float32))
    from fedamp.kernels.pool import pooled

    def plain(x, bias):
        summed = (x.to(bias.dtype) + bias[:, :, None, None]).flatten(1, 2)
        return F.relu(F.max_pool2d(summed, 2)).to(x.dtype)

    close = {"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    upwards = torch.randn(batch, n * channels, size[0] // 2, size[1] // 2, device=device).to(dtype)
    found, expected = [], []
    for function, kept in ((pooled, found), (plain, expected)):
        inputs = x.detach().requires_grad_(), bias.detach().requires_grad_()
        y = function(*inputs)
        kept += [y.detach(), *torch.autograd.grad(y, inputs, upwards)]
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **close)


def test_what_is_no_number_stays_none(device):
    from fedamp.kernels.pool import pooled

    x = torch.zeros(1, 1, 1, 2, 4, device=device)
    x[..., 1, 2] = torch.nan
    assert pooled(x, torch.zeros(1, 1, device=device)).isnan().flatten().tolist() == [False, True]


def test_a_convolution_with_its_pool_is_the_same_with_the_kernel_and_without(device, monkeypatch):
    torch.manual_seed(2)
    layer = ClientPooledConv2d(torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.MaxPool2d(2)).to(device)
    weight, bias = torch.randn(3, 4, 2, 3, 3, device=device), torch.randn(3, 4, device=device)
    x = torch.randn(5, 6, 8, 8, device=device)

    def run():
        values = {"weight": weight.clone().requires_grad_(), "bias": bias.clone().requires_grad_()}
        y = torch.func.functional_call(layer, values, (x,))
        return [y, *torch.autograd.grad(y.square().sum(), list(values.values()))]

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        found = run()
        assert type(found[0].grad_fn).__name__ == "_PooledBackward"
        monkeypatch.setattr(kernels, "usable", lambda x: False)
        for one, other in zip(found, run(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
