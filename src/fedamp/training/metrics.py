"""How good answers are: outputs and targets -> one number. Pure functions of torch tensors on the CPU, in float64.

Outputs are `(N, k)`: class scores (logits) of each sample, or one number for a regression. Targets are `(N,)`.
What the targets do not define (an AUC of one class, an R2 of one sample) is nan, whatever the outputs are. Over more
than two classes F1, AUC and average precision are means over the classes, each one against the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

UNDEFINED = math.nan


def distinct(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct values in order, the place of each value among them, and how often each occurs."""
    found, place, count = values.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    return found, place, count


def answers(output: Tensor) -> Tensor:
    """Return the class that each row answers, `(N,)`; -1 where an output is not finite: there is no answer."""
    return output.argmax(-1).where(output.isfinite().all(-1), -1)


def accuracy(output: Tensor, y: Tensor) -> float:
    """Return the share of right answers."""
    return float((answers(output) == y).double().mean())


def balanced_accuracy(output: Tensor, y: Tensor) -> float:
    """Return the mean, over the classes that there are, of the share of right answers in the class."""
    right = (answers(output) == y).double()
    return float(torch.stack([right[y == each].mean() for each in distinct(y)[0]]).mean())


def f1(output: Tensor, y: Tensor, positive: int | None) -> float:
    """Return 2 TP / (2 TP + FP + FN) of the positive class, or (None) the mean over all that occur or are answered.

    Without a positive sample there is nothing to find: undefined.
    """
    said = answers(output)
    if positive is not None:
        return _f1(said == positive, y == positive) if bool((y == positive).any()) else UNDEFINED
    classes = [each for each in distinct(torch.cat([said, y]))[0].tolist() if each >= 0]
    return math.fsum(_f1(said == each, y == each) for each in classes) / len(classes)


def _f1(said: Tensor, true: Tensor) -> float:
    return 2 * int((said & true).sum()) / (int(said.sum()) + int(true.sum()))


def auc(output: Tensor, y: Tensor, positive: int | None) -> float:
    """Return the area under the ROC curve: how likely a positive sample ranks above a negative one, ties by half."""
    return _mean([_auc(score, true) for score, true in against_the_rest(output, y, positive)])


def _auc(score: Tensor, true: Tensor) -> float:
    """Mann and Whitney's U of the positive samples' midranks, over the number of pairs."""
    ranks, ones = midranks(score), int(true.sum())
    return float((ranks[true].sum() - ones * (ones + 1) / 2) / (ones * (len(true) - ones)))


def midranks(score: Tensor) -> Tensor:
    """Return the ranks of values from 1; equal ones share the mean of theirs.

    >>> midranks(torch.tensor([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, count = distinct(score)
    return (count.cumsum(0).double() - (count.double() - 1) / 2)[place]


def average_precision(output: Tensor, y: Tensor, positive: int | None) -> float:
    """Return the precision at each threshold, averaged by the share of positive samples that it adds."""
    return _mean([_average_precision(score, true) for score, true in against_the_rest(output, y, positive)])


def _average_precision(score: Tensor, true: Tensor) -> float:
    _, place, count = distinct(score)
    found = torch.zeros(len(count), dtype=torch.float64).index_add(0, place, true.double()).flip(0)
    precision = found.cumsum(0) / count.flip(0).cumsum(0)
    return float((precision * found).sum() / found.sum())


def against_the_rest(output: Tensor, y: Tensor, positive: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield how sure a model is of a class, and which samples are of it, for each class that some are of, not all."""
    if positive is not None:  # log odds: probabilities near 0 and 1 would be rounded to ties
        others = torch.arange(output.shape[1]) != positive
        score = output[:, positive] - output[:, others].logsumexp(-1)
        if bool((y == positive).any()) and not bool((y == positive).all()):
            yield score, y == positive
        return
    present = distinct(y)[0].tolist()
    sure = F.log_softmax(output, -1)
    for each in present if len(present) > 1 else []:
        yield sure[:, each], y == each


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else UNDEFINED


def log_loss(output: Tensor, y: Tensor) -> float:
    """Return the mean of minus the logarithm of the probability that the right class was given."""
    return float(F.cross_entropy(output, y))


def rmse(output: Tensor, y: Tensor) -> float:
    """Return the root of the mean squared error."""
    return math.sqrt(float(((output[:, 0] - y) ** 2).mean()))


def mae(output: Tensor, y: Tensor) -> float:
    """Return the mean absolute error."""
    return float((output[:, 0] - y).abs().mean())


def r2(output: Tensor, y: Tensor) -> float:
    """Return 1 minus the squared errors over those of the mean target; undefined if all targets are the same."""
    around = ((y - y.mean()) ** 2).sum()
    if bool((y == y[0]).all()):
        return UNDEFINED
    return float(1 - ((output[:, 0] - y) ** 2).sum() / around)


Function = Callable[[Tensor, Tensor], float]
"""From outputs and targets of one client's samples to its score."""


def functions(task: str, classes: int, positive: int | None) -> dict[str, Function]:
    """Return every metric of a task as a function of outputs and targets; `positive` is of two classes."""
    if task == "regression":
        return {"rmse": rmse, "mae": mae, "r2": r2}
    one = positive if classes == 2 else None
    return {
        "accuracy": accuracy,
        "balanced-accuracy": balanced_accuracy,
        "f1": lambda output, y: f1(output, y, one),
        "auc": lambda output, y: auc(output, y, one),
        "average-precision": lambda output, y: average_precision(output, y, one),
        "log-loss": log_loss,
    }
