"""How a run is judged: its metric, the positive class, a loss or metric of the user's own, and who has no score."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedamp.config import RunConfig
from fedamp.config.metrics import OWN, SIGN, Metric, info, metric_name
from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.models.fingerprint import code_digest
from fedamp.training.tasks_and_metrics import Task, scored_by, with_loss

Loss = Callable[[Tensor, Tensor], Tensor]
"""A user's own loss: from outputs `(B, k)` and targets `(B,)` to the loss of each sample `(B,)`, or to one number."""

Labels = Sequence[str] | None
"""The names of the classes in order; None if they have none, or if there are no classes."""

ENOUGH_TO_CHOOSE = 30
"""Held-out samples of the rarest class: with fewer, an AUC has a standard error above 0.044 (Hanley and
McNeil 1982, at an AUC of 0.85 and many samples of the other class), and rounds differ by less than that."""

NEGATIVE = ("no", "nein", "non", "false", "negative", "healthy", "control", "absent", "0", "none")
"""Words that name the negative class, though they may sort last."""


@dataclass(frozen=True)
class OwnParts:
    """What was given from Python in place of a name: a loss to train with, a metric to judge by."""

    loss: Loss | None = None
    metric: Metric | None = None

    def described(self) -> dict[str, str]:
        """Return what a configuration says about them: names and digests of their code."""
        found = {}
        if self.loss is not None:
            found["loss_code"] = code_digest(self.loss)
        if self.metric is not None:
            found |= {"metric": self.metric.recorded, "metric_code": code_digest(self.metric.function)}
        return found


NOTHING_OWN = OwnParts()
"""The usual case: all parts of a run are chosen by name."""


def judged_task(config: RunConfig, task: Task, num_classes: int, labels: Labels, own: OwnParts) -> Task:
    """Return the task as a run's configuration wants it trained and scored."""
    if config.loss_code is not None and own.loss is None:
        raise UserError(_from_python("loss"))
    if config.metric.startswith(f"{OWN}:") and own.metric is None:
        raise UserError(_from_python("metric"))
    if config.class_weights == "balanced" and task.name == "regression":
        raise UserError("class_weights is 'balanced', but the task is a regression, which has no classes; leave it out")
    positive = positive_class(config.positive, task, num_classes, labels)
    task = scored_by(replace(task, positive=positive), metric_name(config.metric, task.name), num_classes, own.metric)
    return task if own.loss is None else with_loss(task, own.loss)


def _from_python(what: str) -> str:
    return (
        f"this run has a {what} of its own that was given from Python, and only Python can continue it: "
        f"fedamp.run(..., {what}=..., out=FOLDER)"
    )


def positive_class(asked: str | None, task: Task, num_classes: int, labels: Labels) -> int | None:
    """Return the number of the positive class of a task with two; by default the one that sorts last."""
    two = task.name == "classification" and num_classes == 2
    if asked is None:
        return 1 if two else None
    if not two:
        what = "is a regression" if task.name == "regression" else f"has {num_classes} classes"
        raise UserError(f"positive is {asked!r}, but the task {what}; it is for a task of two classes: leave it out")
    words = class_words(labels, num_classes)
    if str(asked) not in words:
        raise UserError(f"positive is {asked!r}; choose one of the two classes: {', '.join(map(repr, words))}")
    return words.index(str(asked))


def class_words(labels: Labels, num_classes: int) -> list[str]:
    """Return what the classes are called: as in the silos' tables, by words from Python, or by number."""
    return [str(number) for number in range(num_classes)] if labels is None else list(labels)


def positive_word(task: Task, labels: Labels) -> str | None:
    """Return what the positive class is called; None if there is none."""
    return None if task.positive is None else class_words(labels, 2)[task.positive]


def judging_warnings(config: RunConfig, task: Task, labels: Labels) -> list[str]:
    """Return a warning if the class that sorts last is taken as the positive one, though its name denies it."""
    word = positive_word(task, labels)
    if config.positive is not None or word is None or not info(task.metric).by_positive:
        return []
    if word.lower() not in NEGATIVE:
        return []
    other = next(each for each in class_words(labels, 2) if each != word)
    return [
        f"the positive class is {word!r}, which sorts last; if {other!r} is what {info(task.metric).words} is to find, "
        f"give --positive {other}"
    ]


def undefined(task: Task, clients: Clients, on: str) -> list[bool]:
    """Return whose samples do not define the metric, whatever a model answers: those of one class, or one sample.

    A user's own metric is not asked beforehand.
    """
    if task.judge is None or task.metric.startswith(f"{OWN}:"):
        return [False] * len(clients)
    judge = task.judge
    outputs = 1 if task.name == "regression" else max(2, int(clients.y.max()) + 1)
    targets = [task.in_unit(torch.zeros(len(held), outputs), clients.y[held]) for held in getattr(clients, on)]
    return [math.isnan(judge(output, y)) for output, y in targets]


def undefined_warnings(
    task: Task, clients: Clients, names: Sequence[str] | None, together: bool
) -> tuple[list[str], list[int]]:
    """Return a warning about clients whose test samples define no score, and which ones they are, by position.

    All of them in a run of several is an error: nothing could be said about any model. `together` is False in a silo
    and for a newcomer: each is alone, and metric and shares were chosen by others.
    """
    warnings, words = [], info(task.metric).words
    nobody: list[int] = []
    for on, more in (("test", "--held-out"), ("validation", "--validation")):
        if not getattr(clients, on):
            continue
        without = [i for i, missing in enumerate(undefined(task, clients, on)) if missing]
        if on == "test":
            nobody = without
        if not without:
            continue
        who = ", ".join(_named(clients, i, names) for i in without[:8]) + (", ..." if len(without) > 8 else "")
        by_flags = f"Hold out more ({more}), or choose another --metric, such as {_other(task)}"
        cure = by_flags if together else "More rows would define one"
        if together and len(without) == len(clients):
            raise UserError(
                f"{words} is not defined for any client: the {on} samples of each have {_lack(task)}. {cure}"
            )
        then = "no score, and no part in means and p" if on == "test" else "no say in which models are chosen"
        one = len(without) == 1
        warnings.append(
            f"{words} is not defined for {who}: {'its' if one else 'their'} {on} samples have {_lack(task)}. "
            f"{'It has' if one else 'They have'} {then}. {cure}"
        )
    return warnings, nobody


def choice_warnings(task: Task, clients: Clients) -> list[str]:
    """Return a warning if the rarest class has so few held-out samples that what they choose is left to chance."""
    if task.name != "classification" or info(task.metric).paired == SIGN or not clients.validation:
        return []
    counts = torch.bincount(clients.y[torch.cat(list(clients.validation))])
    rarest = int(counts[counts > 0].min())
    if rarest >= ENOUGH_TO_CHOOSE:
        return []
    return [
        f"of the rarest class {rarest} {'sample is' if rarest == 1 else 'samples are'} held out, in all clients "
        f"together: which round and model these choose by {info(task.metric).words} is largely chance. Hold out more "
        "(--validation), or leave --validation out: then the last round counts"
    ]


def _named(clients: Clients, i: int, names: Sequence[str] | None) -> str:
    return f"client {clients.numbers[i]}" if names is None else str(names[i])


def _lack(task: Task) -> str:
    """Return what samples have that do not define a metric."""
    if task.metric == "r2":
        return "only one value"
    return "no positive sample" if task.metric == "f1" else "only one class"


def _other(task: Task) -> str:
    return "rmse" if task.name == "regression" else "log-loss"


def check_loss(task: Task, output: Tensor, y: Tensor, weighted: bool) -> None:
    """Raise unless a user's own loss gives a number that can be differentiated, for each sample or for all."""
    if not task.own_loss:
        return
    expected = f"expected a tensor of shape {tuple(y.shape)}, the loss of each sample, or one number for all"
    point = output.detach().clone().requires_grad_(True)
    try:
        losses = task.losses(point, y)
    except Exception as error:  # whatever a user's function may do
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"the loss fails on outputs of shape {tuple(output.shape)} and targets of shape {tuple(y.shape)}: {why}"
        ) from None
    if not isinstance(losses, Tensor):
        raise UserError(f"the loss returns a {type(losses).__name__}; {expected}")
    if losses.shape not in ((), y.shape):
        raise UserError(f"the loss returns a tensor of shape {tuple(losses.shape)}; {expected}")
    if not losses.requires_grad:
        raise UserError("the loss does not depend on the outputs, so nothing can be learned from it; look for a detach")
    if weighted and losses.shape == ():
        raise UserError(
            "the loss returns one number for a batch, but class_weights is 'balanced', which weighs single samples; "
            "return the loss of each (reduction='none'), or leave class_weights out"
        )
