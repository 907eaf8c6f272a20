"""Each sample's own gradient, clipped: no sample moves their sum by more than the clip, whatever it holds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedamp import seeds
from fedamp.models.dropout import CoordinateDropout, seed_streams
from fedamp.models.flat_model import FlatModel
from fedamp.models.unfolded import UnfoldedConvolutions
from fedamp.training.precision import exactly
from fedamp.training.tasks_and_metrics import Task

Named = dict[str, Tensor]
"""The parameters of a module by name, or what belongs to each of them."""

VALUES = 1 << 24
"""Values of samples' gradients that a CPU holds at once: 64 MB of them, and a few times as much on the way."""

GPU_SHARE = 1 / 16
"""The same for a GPU, as a share of its memory."""

UNFOLDED = ("cuda",)
"""Devices on which convolutions are products while samples have gradients of their own; on a CPU that is no faster."""

SAMPLES = 4096
"""Samples whose losses are taken at once."""

OVER_SAMPLES = (None, None, 0, 0, 0)
"""All samples of a client meet the same parameters and buffers; inputs, target and dropout's key are a sample's own."""


class SampleGradients:
    """The gradients of samples that pass through one model one by one, so that nothing in it can mix them."""

    def __init__(self, model: FlatModel, task: Task) -> None:
        self.model, self.task = model, task
        self.by_vmap = True  # all samples at once; else one after the other, for a module that vmap can't handle

    def clipped_sum(
        self, clip: float, present: Tensor, point: Tensor, buffers: Tensor, x: Tensor, y: Tensor, keys: Tensor, t: int
    ) -> tuple[Tensor, Tensor]:
        """Return the sums over n clients' samples of their clipped gradients `(n, d)`, and of their losses `(n,)`.

        Points are `(n, d)`, inputs `(n, B, ...)`, dropout's keys `(n, B, 2)`; samples that are not `present` `(n, B)`
        are padding. Samples are taken in portions, so that memory does not grow with B.
        """
        total, losses = torch.zeros_like(point), point.new_zeros(len(point))
        portion = self.portion(point)
        for begin in range(0, y.shape[1], portion):
            some = slice(begin, begin + portion)
            gradients, values = self._gradients(point, buffers, x[:, some], y[:, some], keys[:, some], t)
            total += clipped_sum(gradients, present[:, some], clip)
            losses += values.where(present[:, some], 0).sum(1)
        return total, losses

    @staticmethod
    def portion(point: Tensor) -> int:
        """Return how many samples of each client are taken at once."""
        values = VALUES
        if point.is_cuda:
            memory = torch.cuda.get_device_properties(point.device).total_memory
            values = int(GPU_SHARE * memory / point.element_size())
        return max(1, values // point.numel())

    def losses(self, params: Tensor, buffers: Tensor, x: Tensor, y: Tensor, keys: Tensor) -> Tensor:
        """Return the loss of each of one client's samples, `(B,)`, without training."""
        parts = [params.new_zeros(0)]
        for begin in range(0, len(y), SAMPLES):
            some = slice(begin, begin + SAMPLES)
            inputs = params, buffers, x[some], y[some], keys[some]
            found = self._tried(partial(self._loss, 1, False), *inputs)
            parts.append(torch.stack(list(self._one_by_one(1, False, *inputs))) if found is None else found)
        return torch.cat(parts)

    def _gradients(
        self, point: Tensor, buffers: Tensor, x: Tensor, y: Tensor, keys: Tensor, t: int
    ) -> tuple[list[Tensor], Tensor]:
        """Return each sample's gradient, a tensor `(n, B, ...)` for each parameter, and its loss `(n, B)`."""
        each = grad_and_value(partial(self._loss, t, True))
        inputs = point[0], buffers[0], x[0], y[0], keys[0]
        with UnfoldedConvolutions() if point.device.type in UNFOLDED else contextlib.nullcontext():
            if len(point) > 1:
                gradients, values = vmap(vmap(each, OVER_SAMPLES))(self.model.named(point), buffers, x, y, keys)
                return list(gradients.values()), values
            found = self._tried(each, *inputs)
        if found is not None:
            return [part[None] for part in found[0].values()], found[1][None]
        return self._gradients_one_by_one(t, *inputs)

    def _loss(self, t: int, training: bool, named: Named, buffers: Tensor, x: Tensor, y: Tensor, key: Tensor) -> Tensor:
        """Return the loss of one sample, alone in its batch; what it does to the buffers is forgotten."""
        with CoordinateDropout(key, t):
            output, _ = self.model.at(named, buffers, x[None].clone(), training)
        return self.task.loss(output.to(self.model.dtype), y[None])

    def _tried(self, function: Callable[..., Any], params: Tensor, *inputs: Tensor) -> Any:
        """Return the function of each of one client's samples by vmap; None if the module can't take it."""
        if self.by_vmap:
            try:
                return vmap(function, OVER_SAMPLES)(self.model.named(params), *inputs)
            except torch.OutOfMemoryError:
                raise
            except Exception:  # whatever a user's module may do under vmap: if it is a fault, it comes again alone
                self.by_vmap = False
        return None

    def _gradients_one_by_one(self, t: int, params: Tensor, *inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        gradients, values = [], []
        # A copy for each sample: a module may write into its weights, and no other sample may see what one did to them.
        for sample in zip(*inputs[1:], strict=True):
            at = params.clone().requires_grad_()
            (value,) = self._one_by_one(t, True, at, inputs[0], *(part[None] for part in sample))
            gradients.append(torch.autograd.grad(value, at)[0])
            values.append(value.detach())
        return [torch.stack(gradients)[None]], torch.stack(values)[None]

    def _one_by_one(
        self, t: int, training: bool, params: Tensor, buffers: Tensor, x: Tensor, y: Tensor, keys: Tensor
    ) -> Iterator[Tensor]:
        """Yield the loss of each of one client's samples."""
        for one, label, key in zip(x, y, keys, strict=True):
            high, low = key.tolist()
            # Randomness that is not dropout is this sample's own too.
            seed_streams(seeds.number(high % 2**32, "other randomness", low % 2**32, t), x.device)
            named = self.model.named(params if training else params.clone())
            yield self._loss(t, training, named, buffers, one, label, key)


def clipped_sum(gradients: list[Tensor], present: Tensor, clip: float) -> Tensor:
    """Return the sum over samples of their gradients `(n, B, ...)`, none longer than `clip`, as rows `(n, d)`.

    Absent samples, and those whose gradient has no finite length, count as 0.
    """
    parts = [part.reshape(*present.shape, -1) for part in gradients]
    lengths = torch.stack([part.norm(dim=2) for part in parts]).norm(dim=0)
    finite = lengths.isfinite()
    factors = (clip / lengths.clamp(min=clip)).where(present & finite, 0)
    if not bool(finite.all()):  # 0 times infinity is no number
        parts = [part.where(finite[..., None], 0) for part in parts]
    with exactly(factors.device):  # no product may make a gradient longer than it is
        return torch.cat([torch.einsum("nb,nbd->nd", factors, part) for part in parts], 1)
