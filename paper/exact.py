"""Exact local training: a client goes straight to the point where its direction vanishes, without a learning rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedamp.rows import Rows


@dataclass(frozen=True)
class ExactLocal:
    """Solve direction(w) = 0 by Newton's method, for losses that are sums over coordinates.

    `gradient` is F' of all clients, elementwise on `(n, d)`. A proximal direction is then a function of each
    coordinate alone, so its Jacobian is a diagonal.
    """

    gradient: Callable[[Tensor], Tensor]
    lr: float = 1.0

    @property
    def sizes(self) -> Tensor:
        """An exact step has none."""
        raise AssertionError("an exact step has no samples")

    @property
    def steps(self) -> Tensor:
        """An exact step has none."""
        raise AssertionError("an exact step is not made of steps")

    def noise(self, of: str = "") -> Tensor:
        """Return no noise: one zero stands for all clients."""
        return torch.zeros((1, 1), dtype=torch.float64)

    def at_home(self) -> ExactLocal:
        """Return itself: nothing is noised."""
        return self

    def run(self, start: Any, direction: Any, **context: Tensor) -> Any:
        """Return the point where the direction vanishes."""
        w = start.params.clone()
        for _ in range(100):
            free = w.clone().requires_grad_()
            value = direction(free, lambda point: self.gradient(point), **context)
            (slope,) = torch.autograd.grad(value.sum(), free)
            step = value.detach() / slope
            w = w - step
            if step.abs().max() < 1e-14 * (1 + w.abs().max()):
                return Rows(w, start.buffers)
        raise AssertionError(f"Newton's method did not end: last step {step.abs().max():g}")
