"""Whether a user's module can be trained on the clients' data: checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.models.flat_model import FlatModel
from fedamp.training.stacked.same_as_loop import left_behind
from fedamp.training.tasks_and_metrics import Task


def check_model(model: FlatModel, clients: Clients, num_outputs: int, task: Task) -> None:
    """Raise if the module can't take the data, has other outputs than the task needs, or keeps what it has seen."""
    name, few = type(model.module).__name__, clients.few()
    x = few[0, :2]
    for training, what in ((False, f"the model {name} fails on"), (True, f"a training step of {name} fails on")):
        try:
            output = _outputs(model, x, training)
        except Exception as error:  # whatever a user's module may do
            why = " ".join(str(error).split())[:200] or type(error).__name__
            if x.is_floating_point() and model.dtype != x.dtype:
                raise UserError(
                    f"the model {name} is of {model.dtype}, but models train in {x.dtype}, which their inputs are in; "
                    f"give it in that: model.to({x.dtype})"
                ) from None
            if not x.is_floating_point():
                why += "; they are whole numbers, for an Embedding: give floats to other layers"
            raise UserError(f"{what} inputs of shape {tuple(x.shape)}: {why}") from None
        _check_output(name, output, len(x), num_outputs, task)
    left = left_behind(model, few)
    if left is not None:
        what = ", ".join(left) or "what it is can't be seen from outside"
        raise UserError(
            f"the model {name} keeps something from one pass to the next ({what}), which would pass from client to "
            "client; register it as a buffer with persistent=True, so that every client's model has its own, or do not "
            "write to it in forward"
        )


def check_private(model: FlatModel, clients: Clients) -> None:
    """Raise if the module can't be trained on single samples, or keeps statistics of those that it was trained on."""
    name, x, row = type(model.module).__name__, clients.few()[0, :1], model.row()
    model(row.params[0], row.buffers[0], clients.few()[0], training=True)
    mixing = [place for place, part in model.module.named_modules() if isinstance(part, _BatchNorm) and part.training]
    if mixing:
        raise UserError(
            f"the model {name} has BatchNorm ({', '.join(mixing[:3])}{', ...' if mixing[3:] else ''}), which mixes the "
            "samples of a minibatch, so that no single one can be protected; use GroupNorm instead, or of the models "
            "by name mlp, logistic, cnn or cnn-small without norm; or leave out privacy (dp_epsilon, dp_noise)"
        )
    try:
        _outputs(model, x, training=True)
        _, after = model(row.params[0], row.buffers[0], x.clone(), training=True)
    except Exception as error:  # whatever a user's module may do
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"a training step of {name} fails on a single sample: {why}; privacy takes each sample's gradient alone, "
            "so that nothing in the model may need several"
        ) from None
    if not torch.equal(after, row.buffers[0]):
        before, moved = model.unflatten(row.params[0], row.buffers[0])[1], model.unflatten(row.params[0], after)[1]
        names = [buffer for buffer in before if not torch.equal(before[buffer], moved[buffer])]
        raise UserError(
            f"the model {name} keeps statistics of the samples that it was trained on (buffer {', '.join(names)}), "
            "which clipping and noise do not cover; take a normalisation without them (GroupNorm, LayerNorm), or leave "
            "out privacy (dp_epsilon, dp_noise)"
        )


def _outputs(model: FlatModel, x: Tensor, training: bool) -> Any:
    row = model.row()
    params = row.params[0].requires_grad_(training)
    output, _ = model(params, row.buffers[0], x.clone(), training)
    if training and isinstance(output, Tensor):
        torch.autograd.grad(output.sum(), params)
    return output


def _check_output(name: str, output: Any, samples: int, num_outputs: int, task: Task) -> None:
    if not isinstance(output, Tensor):
        raise UserError(
            f"the model {name} returns {_kind(output)}; expected one tensor of shape ({samples}, {num_outputs}) for "
            f"{samples} samples. Wrap it in a module whose forward returns the outputs alone, such as "
            "`return self.model(x).logits`"
        )
    regression = task.name == "regression"
    right = output.ndim == 2 and len(output) == samples
    if not right or output.shape[1] < num_outputs or (regression and output.shape[1] > num_outputs):
        many = regression and right and output.shape[1] > 1
        expected = "one number, for a regression" if regression else "one number for each class"
        expected += "; for classes give task='classification'" if many else ""
        raise UserError(
            f"the model {name} gives an output of shape {tuple(output.shape)} for {samples} samples; expected "
            f"({samples}, {num_outputs}): {expected}"
        )


def _kind(value: Any) -> str:
    """Return what came back, in words."""
    if value is None:
        return "None"
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return f"a {kind} with {', '.join(repr(str(key)) for key in value)}"
    if isinstance(value, tuple | list):
        return f"a {kind} of {len(value)}"
    return f"a value of type {kind}"
