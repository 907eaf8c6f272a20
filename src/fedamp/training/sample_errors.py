"""What single held-out samples say about a model: the errors by which two models of a client are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from fedamp.config.metrics import RANKS, SIGN, info
from fedamp.data.clients import Clients
from fedamp.rows import Rows
from fedamp.training.evaluate import answers_of
from fedamp.training.metrics import against_the_rest, answers, distinct, midranks
from fedamp.training.tasks_and_metrics import Task

if TYPE_CHECKING:
    from fedamp.training.trainer import Trainer


def sample_errors(trainer: Trainer, clients: Clients, rows: Rows, on: str = "test") -> list[Tensor]:
    """Return the error of each client's row on each of its held-out samples: a vector for each, in float64.

    For accuracy 1 if an answer is wrong, for numbers the squared error. For other metrics a sample's part in the
    client's error: their sum is the mean log loss, or 1 minus the balanced accuracy, or twice 1 minus the AUC, whose
    positive and negative samples each tell all of it. F1 is compared as balanced accuracy, average precision as AUC,
    and a user's own metric by the loss.
    """
    return [errors_of(trainer.task, output, y) for output, y in answers_of(trainer, clients, rows, on)]


def errors_of(task: Task, output: Tensor, y: Tensor) -> Tensor:
    """Return the errors of one client's outputs, as metrics see them; see `sample_errors`."""
    kind = info(task.metric).paired
    if task.name == "regression":
        return (output[:, 0] - y) ** 2 / (1 if kind == SIGN else len(y))
    if kind == RANKS:
        return _misranked(output, y, task.positive)
    wrong = (answers(output) != y).double()
    if kind == SIGN:
        return wrong
    if task.metric in ("balanced-accuracy", "f1"):
        classes, place, count = distinct(y)
        return wrong / (len(classes) * count[place])
    return F.cross_entropy(output, y, reduction="none") / len(y)


def _misranked(output: Tensor, y: Tensor, positive: int | None) -> Tensor:
    """Return for each sample the share of those of the other class that it is on the wrong side of, ties by half.

    Summed over the positive samples of a class and divided by their number it is 1 minus the AUC; so it is over the
    negative ones (DeLong, DeLong and Clarke-Pearson 1988 call these its structural components).
    """
    parts = []
    for score, true in against_the_rest(output, y, positive):
        ranks = midranks(score)
        wrong = torch.empty_like(ranks)
        for mine in (true, ~true):
            # Of all samples, less those of its own class: how many of the others rank below it.
            below = (ranks[mine] - midranks(score[mine])) / (~mine).sum()
            wrong[mine] = (1 - below if mine is true else below) / mine.sum()
        parts.append(wrong)
    return torch.stack(parts).mean(0) if parts else torch.zeros(len(y), dtype=torch.float64)
