"""What is learned: classes, or numbers. How a model's output is judged, and which way is better."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Task:
    """A loss to train with and a metric to report."""

    name: str
    metric: str  # its key in the records
    unit: str  # how a table shows it
    higher_is_better: bool
    loss: Callable[[Tensor, Tensor], Tensor]  # mean over a batch
    tally: Callable[[Tensor, Tensor], Tensor]  # summed over a batch
    finish: Callable[[Tensor], Tensor]  # from the mean tally of a client to its metric


def _right_answers(output: Tensor, y: Tensor) -> Tensor:
    # A model that is not finite has no answer, though argmax gives one.
    return ((output.argmax(-1) == y) & output.isfinite().all(-1)).sum()


def _squared_errors(output: Tensor, y: Tensor) -> Tensor:
    return ((output.squeeze(-1) - y) ** 2).sum()


def _squared_loss(output: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(output.squeeze(-1), y)


CLASSIFICATION = Task("classification", "accuracy", "%", True, F.cross_entropy, _right_answers, lambda mean: mean)


def regression(target_scale: float = 1.0) -> Task:
    """Return the task of predicting a number: squared loss, reported as root mean squared error.

    Targets are standardised for training; the error is given in their own unit, `target_scale` times larger.
    """
    return Task(
        "regression",
        "rmse",
        "",
        False,
        _squared_loss,
        _squared_errors,
        lambda mean: torch.sqrt(mean) * target_scale,
    )
