"""What is learned and how it is scored: classes by accuracy, or numbers by their error; and which way is better."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedamp.errors import UserError


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

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss over a batch."""
        return self.losses(output, y).mean()

    def stacked_loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of each of n batches, `(n,)`, from outputs `(n, B, k)`."""
        return self.losses(output.flatten(0, 1), y.flatten(0, 1)).view(y.shape).mean(1)


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


def regression(target_scale: float = 1.0) -> Task:
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
    )
