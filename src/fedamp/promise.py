"""Whether a module does side by side what it does alone: measured, not believed.

Known layers may stand in a place where clients would mix (a pool over pictures without a channel axis), be used twice,
or be patched; a module of one's own may promise more than it keeps. Two clients with different parameters go through
the module both ways, in float64 on the CPU, where rounding is no excuse.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedamp.flat import FlatModel

TOLERANCE = 1e-6


def keeps_promise(model: FlatModel, x: Tensor) -> bool:
    """Return whether outputs, gradients and buffers of two clients' samples `(2, B, ...)` are the same both ways."""
    if not x.is_floating_point():
        return False
    try:
        probe = FlatModel(model.fresh().cpu().double())
        return all(_same(probe, x.detach().cpu().double(), training) for training in (True, False))
    except Exception:  # whatever a module does: then vmap is tried
        return False


def _same(probe: FlatModel, x: Tensor, training: bool) -> bool:
    stream, row = torch.Generator().manual_seed(0), probe.row()
    # Different for the two: what is mixed up between equal clients does not show. Variances must stay positive.
    params = row.params + 0.1 * torch.randn(2, probe.num_params, generator=stream, dtype=torch.float64)
    buffers = row.buffers + torch.rand(2, probe.num_buffers, generator=stream, dtype=torch.float64)
    together = params.clone().requires_grad_()
    outputs, after = probe.stacked(together, buffers, x.clone(), training)
    (gradients,) = torch.autograd.grad((outputs**2).sum(), together)
    for i in range(2):
        alone = params[i].clone().requires_grad_()
        output, left = probe(alone, buffers[i], x[i].clone(), training)
        (gradient,) = torch.autograd.grad((output**2).sum(), alone)
        pairs = ((outputs[i], output), (gradients[i], gradient), (after[i], left))
        if not all(a.shape == b.shape and torch.allclose(a, b, TOLERANCE, TOLERANCE) for a, b in pairs):
            return False
    return True
