"""What is learned and how it is scored: classes by accuracy, or numbers by their error; or by another metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from fedamp.config.metrics import Metric, info
from fedamp.errors import UserError
from fedamp.training.metrics import Function, functions


@dataclass(frozen=True)
class Task:
    """A loss to train with and a metric to report."""

    name: str
    metric: str  # its key in the records
    unit: str  # how a table shows it
    higher_is_better: bool
    losses: Callable[[Tensor, Tensor], Tensor]  # of each sample
    tally: Callable[[Tensor, Tensor], Tensor]  # summed over a batch
    finish: Callable[[Tensor], Tensor]  # from the mean tally of a client to its metric
    # A metric that is no mean over samples: a function of all of a client's outputs and targets, instead of the tally.
    judge: Function | None = None
    positive: int | None = None  # of two classes, the one that F1 and the like are about
    shift: float = 0.0  # a regression's targets are y * scale + shift in their own unit
    scale: float = 1.0
    own_loss: bool = False  # a user's: of each sample, or one number for a batch

    def loss(self, output: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the mean loss over a batch; weighted by samples' weights `(B,)`, if they are given."""
        losses = self.losses(output, y)
        if weight is None:
            return losses.mean()
        weight = weight.to(losses.dtype)
        return (losses * weight).sum() / weight.sum()

    def stacked_loss(self, output: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the mean loss of each of n batches, `(n,)`, from outputs `(n, B, k)` and weights `(n, B)`."""
        if self.own_loss:  # it may look at a batch as a whole
            return vmap(self.loss)(output, y) if weight is None else vmap(self.loss)(output, y, weight)
        losses = self.losses(output.flatten(0, 1), y.flatten(0, 1)).view(y.shape)
        if weight is None:
            return losses.mean(1)
        weight = weight.to(losses.dtype)
        return (losses * weight).sum(1) / weight.sum(1)

    def in_unit(self, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and targets on the CPU in float64; of a regression, in the target's own unit."""
        output, y = output.detach().cpu().double(), y.cpu()
        if self.name != "regression":
            return output, y
        return output * self.scale + self.shift, y.double() * self.scale + self.shift


def _right_answers(output: Tensor, y: Tensor) -> Tensor:
    # A model that is not finite has no answer, though argmax gives one.
    return ((output.argmax(-1) == y) & output.isfinite().all(-1)).sum()


def _squared_errors(output: Tensor, y: Tensor) -> Tensor:
    return _squared_losses(output, y).sum()


def _cross_entropies(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none")


def _squared_losses(output: Tensor, y: Tensor) -> Tensor:
    if output.shape != (*y.shape, 1):  # torch would broadcast (B, k) against (B,) wherever k is 1 or B
        raise UserError(
            f"the model's output has shape {tuple(output.shape)} for {len(y)} samples of a regression; expected "
            f"{(*y.shape, 1)}: one number for each"
        )
    return (output.squeeze(-1) - y) ** 2


CLASSIFICATION = Task("classification", "accuracy", "%", True, _cross_entropies, _right_answers, lambda mean: mean)


def regression(target_scale: float = 1.0, target_shift: float = 0.0) -> Task:
    """Return the task of predicting a number: squared loss, reported as root mean squared error.

    Targets are standardised for training; the error is given in their own unit, `target_scale` times larger.
    """
    return Task(
        "regression",
        "rmse",
        "",
        False,
        _squared_losses,
        _squared_errors,
        lambda mean: torch.sqrt(mean) * target_scale,
        shift=target_shift,
        scale=target_scale,
    )


def scored_by(task: Task, metric: str, classes: int, own: Metric | None = None) -> Task:
    """Return the task with another metric. One that is a mean over samples is tallied; others see all outputs."""
    about = info(metric)
    named = replace(task, metric=metric, unit=about.unit, higher_is_better=about.higher_is_better)
    if metric in (CLASSIFICATION.metric, "rmse"):
        return named
    if metric == "log-loss":
        return replace(named, tally=lambda output, y: _cross_entropies(output, y).sum())
    if metric == "mae":
        scale = task.scale
        return replace(named, tally=lambda o, y: _squared_losses(o, y).sqrt().sum(), finish=lambda mean: mean * scale)
    if own is not None:
        return replace(named, judge=own.score)
    return replace(named, judge=functions(task.name, classes, task.positive)[metric])


def with_loss(task: Task, loss: Callable[[Tensor, Tensor], Tensor]) -> Task:
    """Return the task with a user's own loss to train with."""
    return replace(task, losses=loss, own_loss=True)
