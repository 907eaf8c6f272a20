"""The parts of a run, from their names: the first models, the method, its optimiser, the device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import torch
from torch import nn

from fedamp import checks, models
from fedamp.config import RunConfig
from fedamp.config.run_config import DEFAULT_LR
from fedamp.errors import UserError
from fedamp.methods import Method, make_method
from fedamp.methods.attention import oracle_self_weight
from fedamp.models.flat_model import FlatModel
from fedamp.ranks.launched import Launched, launched
from fedamp.rows import Rows
from fedamp.training.optimizers import Optimizer


def with_plain_values(method: Method) -> Method:
    """Return a user's own method with hyperparameters of Python's own types, as a method by name has them."""
    given = {f.name: getattr(method, f.name) for f in fields(method)}
    changed = {name: value for name, value in checks.plain(given).items() if type(value) is not type(given[name])}
    return replace(method, **changed) if changed else method


def device_of(name: str) -> torch.device:
    """Return the device of this name; `auto` is a GPU if there is one. Of several processes each has its own GPU."""
    if (us := launched()) is not None and name != "cpu":
        name = _own_gpu(name, us)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise UserError(f"device is {name!r}; expected auto, cpu, cuda, or one GPU of several like cuda:1")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device is {name!r}, but torch sees no CUDA device here; use cpu or auto")
    device = torch.device(name)
    if device.type == "cuda" and device.index is not None:
        if device.index >= torch.cuda.device_count():
            raise UserError(f"device is {name!r}, but the last GPU here is cuda:{torch.cuda.device_count() - 1}")
        torch.cuda.set_device(device)  # memory is measured, and graphs are recorded, on the current one
    return device


def _own_gpu(name: str, us: Launched) -> str:
    """Return the GPU of one of several processes; `auto` as it is, if there is none here."""
    if name not in ("auto", "cuda"):
        raise UserError(
            f"device is {name!r}, but each of the {us.local_size} processes here has a GPU of its own; give --device "
            "cuda, or cpu"
        )
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto" and not count:
        return name
    if count < us.local_size:
        raise UserError(
            f"device is {name!r}, but there are {us.local_size} processes on this machine and {count} GPUs; expected a "
            f"GPU for each: start at most {count} (torchrun --nproc-per-node), or give --device cpu"
        )
    if not torch.distributed.is_nccl_available():
        raise UserError(f"device is {name!r}, but this torch has no NCCL, by which processes with GPUs talk; use cpu")
    return f"cuda:{us.local_rank}"


def first_models(
    config: RunConfig,
    shape: tuple[int, ...],
    num_outputs: int,
    numbers: Sequence[int],
    model: nn.Module | Callable[..., nn.Module] | None,
    device: torch.device,
) -> tuple[FlatModel, Rows]:
    """Return the model, and the first model of each client: the same wherever it is made."""
    if isinstance(model, nn.Module):
        if config.init == "own":
            raise UserError("init is 'own', but one module was given; give a function that builds a model instead")
        flat = FlatModel(_copied(model).to(device))
        return flat, flat.row().repeat(len(numbers))
    builder = model or models.load_builder(config.model.name)
    parameters = config.model.parameters

    def first(client: int | None) -> nn.Module:
        return models.build(builder, shape, num_outputs, config.seed, client, **parameters).to(device)

    flat = FlatModel(first(None))
    if config.init == "common":
        return flat, flat.row().repeat(len(numbers))
    return flat, Rows.cat([flat.row(first(number)) for number in numbers])


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:  # torch can't copy a tensor that is part of a graph
        why = " ".join(str(error).split())[:200]
        raise UserError(
            f"the model {type(model).__name__} can't be copied ({why}); give one that has not been used yet, or detach "
            "what it keeps from its last pass"
        ) from None


def method_of(config: RunConfig, groups: tuple[int, ...] | None = None) -> Method:
    """Return the method that a configuration names; `groups` are the clients' true ones, for an oracle."""
    parameters = dict(config.method.parameters)
    if parameters.get("self_weight") == "oracle":
        parameters["self_weight"] = oracle_self_weight(groups)
    return make_method(config.method.name, **parameters)


def optimizer_of(config: RunConfig, method: Method) -> Optimizer:
    """Return the optimiser that a configuration names, or the method's own; the method must be able to use it."""
    name = config.optimizer or method.optimizer
    own = method.lr if name == method.optimizer else DEFAULT_LR.get(name, 1e-3)
    lr = own if config.lr is None else config.lr
    optimizer = Optimizer(name, lr, config.momentum, config.weight_decay)
    check_optimizer(method, optimizer)
    return optimizer


def check_optimizer(method: Method, optimizer: Optimizer) -> None:
    """Raise if a method that rests on plain SGD is given anything else."""
    if method.plain_sgd_only and not optimizer.plain:
        raise UserError(
            f"optimizer is {optimizer.name} with momentum {optimizer.momentum:g} and weight decay "
            f"{optimizer.weight_decay:g}, but {type(method).__name__} rests on plain SGD steps; "
            "use sgd without momentum or weight decay"
        )
