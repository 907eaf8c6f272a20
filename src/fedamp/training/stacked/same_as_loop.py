"""What a user's module really does: measured before a run, not taken on trust.

- Whether it does side by side what it does alone: known layers may be in a place where clients would mix (a pool
  over pictures without a channel axis), be used twice, or be patched; a user's own module may promise more than it
  keeps.
- Whether a pass changes the next one.
- Whether a scoring pass draws random numbers.

In float64 on the CPU, where rounding is no excuse.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch
from torch import Tensor

from fedamp.models.dropout import CoordinateDropout, dropout_key, own_stream, streams
from fedamp.models.flat_model import FlatModel
from fedamp.models.left_behind import differences

TOLERANCE = 1e-6


def same_as_loop(model: FlatModel, x: Tensor) -> bool:
    """Return whether outputs, gradients and buffers of two clients' samples `(2, B, ...)` are the same both ways."""
    if not x.is_floating_point():
        return False
    try:
        probe = FlatModel(model.fresh().cpu().double())
        return all(_same(probe, x.detach().cpu().double(), training) for training in (True, False))
    except Exception:  # whatever a module may do: then vmap is tried
        return False


def _same(probe: FlatModel, x: Tensor, training: bool) -> bool:
    stream, row = torch.Generator().manual_seed(0), probe.row()
    # Different for the two: a mix-up between equal clients would not show. Variances must stay positive.
    params = row.params + 0.1 * torch.randn(2, probe.num_params, generator=stream, dtype=torch.float64)
    buffers = row.buffers + torch.rand(2, probe.num_buffers, generator=stream, dtype=torch.float64)
    together = params.clone().requires_grad_()
    outputs, after = probe.stacked(together, buffers, x.clone(), training)
    (gradients,) = torch.autograd.grad((outputs**2).sum(), together)
    alone = (_results(probe, params[i], buffers[i], x[i], training) for i in range(2))
    return all(_close((outputs[i], gradients[i], after[i]), results) for i, results in enumerate(alone))


def left_behind(model: FlatModel, x: Tensor) -> list[str] | None:
    """Return what a pass leaves behind that changes the next one, in words; None if a pass changes nothing.

    `x` are samples of two clients, `(2, B, ...)`: after passes over the second one's the first one's must give what
    they gave before.
    """
    for dtype, tolerance in ((torch.float64, TOLERANCE), (model.dtype, 1e-3)):  # some modules accept only one type
        with contextlib.suppress(Exception):  # whatever a module may do: then nothing can be said about it
            probe = FlatModel(model.fresh().cpu().to(dtype))
            mine, other = x.detach().cpu().to(dtype if x.is_floating_point() else x.dtype)
            before = _both_modes(probe, mine)
            went_well = _use(probe, other)
            if x.is_floating_point():
                _use(probe, 10 * other)  # moves what is kept of the largest values, too
            left = differences(probe.fresh(), probe.module)
            if not went_well:  # for what was left behind, or for a reason of its own
                return left or None
            return None if _close(before, _both_modes(probe, mine), tolerance, equal_nan=True) else left
    return None


def _both_modes(model: FlatModel, x: Tensor) -> list[Tensor]:
    row = model.row()
    return [part for training in (True, False) for part in _results(model, row.params[0], row.buffers[0], x, training)]


def _use(model: FlatModel, x: Tensor) -> bool:
    """Take some passes as a plain loop would, and return whether all went well."""
    row = model.row()
    try:
        for training in (True, False, True):
            point = row.params[0].clone().requires_grad_()
            output, _ = model.leaving_traces(point, row.buffers[0], x.clone(), training)
            torch.autograd.grad((output**2).sum(), point)
    except Exception:
        return False
    return True


def _results(
    model: FlatModel, params: Tensor, buffers: Tensor, x: Tensor, training: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output of one pass, the gradient, and the buffers after it; random numbers are the same every time."""
    point = params.clone().requires_grad_()
    with own_stream(0, x.device), CoordinateDropout(dropout_key(0, 0, 0), 1):
        output, after = model(point, buffers, x.clone(), training)
    (gradient,) = torch.autograd.grad((output**2).sum(), point)
    return output, gradient, after


def _close(
    ours: Sequence[Tensor], theirs: Sequence[Tensor], tolerance: float = TOLERANCE, equal_nan: bool = False
) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(a.shape == b.shape and torch.allclose(a, b, tolerance, tolerance, equal_nan) for a, b in pairs)


def draws(model: FlatModel, x: Tensor) -> bool:
    """Return whether a scoring pass over samples `(B, ...)` draws random numbers."""
    row = model.row()
    with own_stream(0, x.device), torch.no_grad():
        before = streams(x.device)
        model(row.params[0], row.buffers[0], x, training=False)
        return streams(x.device) != before
