"""Optimisers as functions of rows: a stack of clients steps at once, and no client sees another's moments.

The arithmetic is that of torch.optim, which can't hold a stack in which some clients have already finished.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adam import adam

from fedamp import checks, kernels
from fedamp.errors import UserError

ADAM_BETAS = (0.9, 0.999)
ADAM_EPS = 1e-8


@dataclass(frozen=True)
class Pull:
    """The pull of a penalty strength/2 |w - anchor|^2, to be applied where a step ends, not where it begins.

    A step along the penalty's gradient overshoots if lr strength > 1, and from 2 on it diverges. Applied at the end (a
    backward Euler step), the stronger the pull, the nearer the step comes to the anchor, and it never goes beyond.
    """

    anchor: Tensor  # (n, d)
    strength: Tensor  # (n, 1); 0 for a client that has no such pull

    def __getitem__(self, index: Tensor | slice) -> Pull:
        return Pull(self.anchor[index], self.strength[index])


@dataclass(frozen=True)
class Optimizer:
    """Adam or SGD, with L2 weight decay, and momentum for SGD. Its state begins anew in each round."""

    name: str = "adam"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        checks.one_of("optimizer", self.name, ["adam", "sgd"])
        checks.positive("lr", self.lr)
        checks.not_negative("weight_decay", self.weight_decay)
        checks.share("momentum", self.momentum)
        if self.momentum == 1:
            raise UserError("momentum is 1; expected less than 1, or nothing is ever forgotten")
        if self.name == "adam" and self.momentum:
            raise UserError(f"momentum is {self.momentum}, but adam has moments of its own; leave it out, or use sgd")

    @property
    def plain(self) -> bool:
        """Whether a step is w - lr times the direction and nothing else."""
        return self.name == "sgd" and not self.momentum and not self.weight_decay

    def init(self, w: Tensor) -> tuple[Tensor, ...]:
        """Return the moments to begin with, each shaped like the rows."""
        return tuple(torch.zeros_like(w) for _ in range(self.num_moments))

    @property
    def num_moments(self) -> int:
        """How many moments there are for each parameter."""
        return 2 if self.name == "adam" else int(self.momentum > 0)

    def step(self, w: Tensor, direction: Tensor, moments: tuple[Tensor, ...], t: int, pull: Pull | None = None) -> None:
        """Take step t (from 1) against the direction; `w` and the moments are changed in place."""
        if self.weight_decay:
            direction = direction + self.weight_decay * w
        if self.name == "adam":
            first, second = moments
            # The fused kernel reads memory as it is laid out: a method's direction may be a view, or of another type.
            direction = direction.to(w.dtype).contiguous()
            # One pass over the rows instead of seven: on a GPU, and for large models, that is what a step costs.
            adam(
                *([w], [direction], [first], [second], [], [w.new_full((), t - 1, dtype=torch.float32)]),
                fused=True,
                amsgrad=False,
                beta1=ADAM_BETAS[0],
                beta2=ADAM_BETAS[1],
                lr=self.lr,
                weight_decay=0.0,
                eps=ADAM_EPS,
                maximize=False,
            )
        elif self.momentum:
            (velocity,) = moments
            velocity.mul_(self.momentum).add_(direction)
            w.add_(velocity, alpha=-self.lr)
        else:
            w.add_(direction, alpha=-self.lr)
        if pull is not None:
            self._pulled(w, pull, moments, t)

    def steps_in_one(self, w: Tensor) -> bool:
        """Return whether `step_along` is there for these rows: Adam on a GPU, in float32, without weight decay."""
        return self.name == "adam" and not self.weight_decay and w.dtype == torch.float32 and kernels.usable(w)

    def step_along(
        self,
        w: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        t: int,
        anchor: Tensor | None = None,
        strength: Tensor | None = None,
    ) -> None:
        """Take the step of `step` along gradient + strength (w - anchor), in one pass over the rows."""
        from fedamp.kernels.adam import adam_step

        rows = w, gradient.contiguous(), *moments
        adam_step(*rows, t=t, lr=self.lr, betas=ADAM_BETAS, eps=ADAM_EPS, anchor=anchor, strength=strength)

    def _rate(self, moments: tuple[Tensor, ...], t: int) -> float | Tensor:
        """Return how far each parameter goes for a direction of 1: lr, or Adam's lr / (sqrt(v) + eps) after step t."""
        if self.name != "adam":
            return self.lr
        return self.lr / ((moments[1] / (1 - ADAM_BETAS[1] ** t)).sqrt_() + ADAM_EPS)

    def variance(
        self, noise: Tensor, w: Tensor, moments: tuple[Tensor, ...], t: int, only: Tensor | None = None
    ) -> Tensor:
        """Return the variance, summed over columns, that noise in step t's direction puts into rows, `(n,)`.

        `noise` `(n,)` is its variance in each column; `only` `(d,)` are the columns that count. With momentum a
        direction goes on to be followed, and comes to lr / (1 - momentum). Of Adam it is an estimate: none of its steps
        moves a column by more than about lr, so that where v is still smaller than the noise, that stands for it.
        """
        columns = w.new_ones(w.shape[1], dtype=torch.float64) if only is None else only.double()
        if self.name != "adam":
            return noise * columns.sum() * (self.lr / (1 - self.momentum)) ** 2
        rate = self._rate(moments, t)
        assert isinstance(rate, Tensor)
        return (noise[:, None] * rate.double().square()).clamp(max=self.lr**2) @ columns

    def _pulled(self, w: Tensor, pull: Pull, moments: tuple[Tensor, ...], t: int) -> None:
        """Move w on to where the step ends: w' = (w + rate s u) / (1 + rate s), u the anchor and s the strength.

        That is w' = w - rate s (w' - u), with each parameter's own rate: lr, or Adam's lr / (sqrt(v) + eps). So w comes
        to rest where the loss and the penalty do, whatever the optimiser: where gradient + s (w - u) = 0.
        """
        rate = self._rate(moments, t)
        ended = torch.lerp(w, pull.anchor, 1 / (1 + 1 / (rate * pull.strength)))
        if self.momentum:  # the velocity is how far the whole step went
            moments[0].add_(w - ended, alpha=1 / self.lr)
        w.copy_(ended)
