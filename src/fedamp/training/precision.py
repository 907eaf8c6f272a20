"""In which number format models are trained and scored. The server's sums are float64 in any case."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from fedamp import checks
from fedamp.errors import UserError

PRECISIONS = ("auto", "fp32", "tf32", "bf16")


def resolve(precision: str, device: torch.device, pictures: bool = False) -> str:
    """Return what `auto` stands for on a device: fp32 on a CPU, tf32 on a GPU, or there bf16 if it can.

    The last for nets of convolutions that tell classes of `pictures`: they scored the same in both, and bf16 is faster.
    """
    checks.one_of("precision", precision, PRECISIONS)
    if precision == "auto":
        if device.type != "cuda":
            return "fp32"
        return "bf16" if pictures and torch.cuda.is_bf16_supported(including_emulation=False) else "tf32"
    if precision == "tf32" and device.type != "cuda":
        raise UserError(f"precision is tf32, which only a GPU has, and this is {device.type}; use fp32 or bf16")
    return precision


@contextlib.contextmanager
def use_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Compute in a format inside: fp32; tf32 (float32 whose products keep 10 bits, a GPU's); bf16 (autocast).

    Parameters, gradients and moments stay float32 in all of them; float64 models are left alone.
    """
    if device.type != "cuda":
        with _autocast(precision, device):
            yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    matmul.allow_tf32 = cudnn.allow_tf32 = precision != "fp32"
    # The fastest convolution is found by trying, and may be a different one next time: not if every bit counts.
    cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
    try:
        with _autocast(precision, device):
            yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


@contextlib.contextmanager
def exactly(device: torch.device) -> Iterator[None]:
    """Compute in the tensors' own format inside, whatever is used around it."""
    with torch.autocast(device.type, enabled=False), use_precision("fp32", device):
        yield


def _autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    if precision != "bf16":
        return contextlib.nullcontext()
    # No cache of casts: a recorded graph must make its own.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
