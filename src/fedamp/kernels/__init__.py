"""What torch does in several passes over a GPU's memory, in one: kernels in Triton, part of torch's GPU builds.

They are for speed alone. Where there is no Triton, or it can't build a kernel, the same is done by torch.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings

import torch
from torch import Tensor

from fedamp.errors import FedampWarning


def usable(x: Tensor) -> bool:
    """Return whether kernels can be used on a tensor: it is on a GPU, and Triton can build kernels there."""
    return x.is_cuda and not torch.compiler.is_compiling() and _builds(x.device)


@functools.cache
def _builds(device: torch.device) -> bool:
    """Return whether Triton is there, and builds and runs the kernels on a device."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        from fedamp.kernels.adam import adam_step
        from fedamp.kernels.pool import pooled

        adam_step(*torch.zeros((4, 1, 1), device=device), t=1, lr=1.0, betas=(0.9, 0.999), eps=1e-8)
        pooled(torch.zeros((1, 1, 1, 2, 2), device=device), torch.zeros((1, 1), device=device))
    except Exception as error:  # whatever Triton lacks: it is only slower without
        why = " ".join(str(error).split())[:200]
        warnings.warn(
            FedampWarning(
                f"Triton can't build kernels here ({type(error).__name__}: {why}), so steps on the GPU are up to a "
                "third slower. It needs a C compiler"
            ),
            stacklevel=2,
        )
        return False
    return True
