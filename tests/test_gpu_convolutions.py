"""The two ways of benchmarks/gpu_convolutions.py are the same convolution."""

import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(BENCHMARKS))
    yield runpy.run_path(str(BENCHMARKS / "gpu_convolutions.py"))
    sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, 1), (3, 2, 1), ((2, 3), (1, 2), (0, 1)), (1, 2, 1)])
def test_windows_are_the_grouped_convolution(benchmark, kernel, stride, padding):
    torch.manual_seed(0)
    conv = benchmark["client_conv"](3, nn.Conv2d(4, 6, kernel, stride, padding, bias=False).double())
    x = torch.randn(5, 12, 7, 8, dtype=torch.float64, requires_grad=True)
    ways = [benchmark["in_windows"](conv, x), conv._grouped(x, None)]
    torch.testing.assert_close(*ways, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(way.square().sum(), [x, conv.weight]) for way in ways]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-11)


def test_the_layers_are_those_of_resnet18(benchmark):
    from fedamp.models import build
    from fedamp.models.zoo import resnet18

    made = build(resnet18, (3, 32, 32), 100, 0)
    found = [part for part in made.modules() if isinstance(part, nn.Conv2d) and part.kernel_size == (3, 3)]
    kinds = [(part.in_channels, part.out_channels, part.stride[0]) for part in found if part.in_channels > 3]
    assert sorted(kinds) == sorted(
        (inner, outer, stride) for inner, outer, stride, _, many in benchmark["LAYERS"] for _ in range(many)
    )
