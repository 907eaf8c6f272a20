"""The gradients of n clients' losses, each at its own point: side by side if all layers are known, else by vmap."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedamp.models.dropout import CoordinateDropout
from fedamp.models.flat_model import FlatModel
from fedamp.training.stacked.graphs import Graphs
from fedamp.training.tasks_and_metrics import Task


class Gradients:
    """The gradients of one model and one task; what a GPU has recorded of them stays from round to round."""

    def __init__(self, model: FlatModel, task: Task, events: list[str] | None = None) -> None:
        self.model, self.task = model, task
        self.graphs = Graphs()
        self.events: list[str] = [] if events is None else events  # messages for the user

    def __call__(
        self,
        point: Tensor,
        buffers: Tensor,
        x: Tensor,
        y: Tensor,
        keys: Tensor,
        t: int,
        call: int = 0,
        weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return gradients `(n, d)`, losses `(n,)` and buffers after the pass `(n, b)`: valid until the next step.

        Points are `(n, d)`, inputs `(n, B, ...)`; `keys` `(n, 2)` and the step t are the coordinates of dropout masks;
        `call` numbers the gradients that are taken of one minibatch; `weight` `(n, B)` are those of the samples.
        """
        weights = () if weight is None else (weight,)
        if self.model.side_by_side:  # which has no dropout
            gradient, loss, after = self.graphs(self._side_by_side, call, point, buffers, x, y, *weights)
            return gradient, loss, after
        return self._vmapped(point, buffers, x, y, keys, t, *weights)

    def _side_by_side(
        self, point: Tensor, buffers: Tensor, x: Tensor, y: Tensor, *weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        at = point.detach().requires_grad_(True)
        output, after = self._pass(at, buffers, x)
        losses = self.task.stacked_loss(output.to(at.dtype), y, *weight)
        (gradient,) = torch.autograd.grad(losses.sum(), at)
        return gradient, losses.detach(), after

    def _pass(self, at: Tensor, buffers: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        try:
            return self.model.stacked(at, buffers, x.clone(), training=True)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if not self.model.compiled:
                raise
            # Compiling is for speed alone: whatever is missing for it, the run goes on.
            self.model.compile(False)
            why = " ".join(str(error).split())[:200]
            self.events.append(
                f"torch.compile failed ({type(error).__name__}: {why}); the run goes on without it. It needs Triton "
                "and a C compiler; --compile off leaves it out"
            )
            return self.model.stacked(at, buffers, x.clone(), training=True)

    def _vmapped(
        self, point: Tensor, buffers: Tensor, x: Tensor, y: Tensor, keys: Tensor, t: int, *weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        def loss(
            params: Tensor, buffers: Tensor, x: Tensor, y: Tensor, key: Tensor, *weight: Tensor
        ) -> tuple[Tensor, Tensor]:
            with CoordinateDropout(key, t):
                output, after = self.model(params, buffers, x.clone(), training=True)
            return self.task.loss(output.to(params.dtype), y, *weight), after

        gradient, (value, after) = vmap(grad_and_value(loss, has_aux=True))(point, buffers, x, y, keys, *weight)
        return gradient, value, after
