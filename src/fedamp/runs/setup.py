"""From a description to a federation that can be played: data, first models, method, way of training."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedamp import checks, models
from fedamp.methods.attention import oracle_self_weight
from fedamp.training.batches import Batching
from fedamp.data.clients import Clients
from fedamp.data import load_data
from fedamp.data.silos.doubts import guess_task, silo_doubts, task_doubts
from fedamp.data.silos.schema import Schema, apply_schema, check_agreed, make_schema, schema_notes
from fedamp.data.silos.schema_file import read_schema
from fedamp.data.silos.read import RawSilo, count_silos, read_silos
from fedamp.config.run_config import DEFAULT_LR, is_folder
from fedamp.config import RunConfig
from fedamp.models.dropout import own_stream
from fedamp.training.choice import Choice, choose_engine, compile_pays
from fedamp.errors import UserError
from fedamp.models.flat import FlatModel
from fedamp.training.config import TrainingConfig
from fedamp.training.trainer import Trainer
from fedamp.methods import METHODS, Method, make_method
from fedamp.training.model_check import check_model
from fedamp.training.optimizers import Optimizer
from fedamp.training.precision import resolve
from fedamp.training.stacked.same_as_loop import draws
from fedamp.runs.round import Tamper, check_optimizer, poison
from fedamp.rows import Rows
from fedamp.data.partition import make_setting
from fedamp.training.tasks import CLASSIFICATION, Task, regression

MOST_CLASSES = 1000
"""Of samples that were handed over: labels up to here need not be fewer than the samples."""


@dataclass(frozen=True)
class Material:
    """What there is to learn from."""

    clients: Clients
    num_outputs: int
    task: Task
    facts: Mapping[str, Any]
    schema: Schema | None = None  # of a user's own silos
    warnings: tuple[str, ...] = ()  # what was guessed, or may not be meant


@dataclass(frozen=True)
class Setup:
    """All that a run needs, made from its description."""

    method: Method
    training: Trainer
    clients: Clients
    w: Rows  # the first models, (m, d)
    choice: Choice
    facts: Mapping[str, Any]  # of the data: sizes, groups, shared samples
    schema: Schema | None
    tamper: Tamper
    warnings: tuple[str, ...] = ()  # of the data: what was guessed, or may not be meant


def load_material(config: RunConfig, data_dir: Path | None = None) -> Material:
    """Return the clients of a described run: a data set split by a setting, or a folder's silos as they are."""
    if config.setting.name == "federation":
        raise UserError(
            f"{config.data!r} is a federation over real machines, whose data nobody has in one place; "
            "`fedamp federation up` goes on with it"
        )
    if is_folder(config.data):
        return _silos(config)
    dataset = _load_once(config.data, data_dir)
    _check_named(config)
    setting = make_setting(config.setting.name, **config.setting.parameters)
    pools = dataset.train_pool.numpy(), dataset.test_pool.numpy()
    assignment = setting.assign(dataset.y.numpy(), *pools, config.clients, config.seed)
    clients = Clients(
        dataset.x,
        dataset.y,
        train=tuple(torch.from_numpy(positions) for positions in assignment.train),
        numbers=tuple(range(config.clients)),
        test=tuple(torch.from_numpy(positions) for positions in assignment.test),
        groups=assignment.groups,
        shift=_per_channel(dataset.shift, dataset.x),
        scale=_per_channel(dataset.scale, dataset.x),
    )
    facts = {
        "shared_samples": assignment.shared,
        "shared_test_samples": assignment.shared_test,
        "note": dataset.note,
    }
    return Material(clients, dataset.num_classes, CLASSIFICATION, facts, warnings=_beside(config.data))


def _check_named(config: RunConfig) -> None:
    """Refuse what is for a user's own silos: of a data set it would be passed over in silence."""
    why = {
        "label": "which has labels of its own",
        "schema": "which needs none",
        "held_out": "which has test samples of its own (--validation holds out training samples)",
    }
    for name, reason in why.items():
        if (value := getattr(config, name)) != getattr(RunConfig, name):
            raise UserError(f"{name} is {value!r}, but the data is {config.data}, {reason}; leave it out")
    if config.task == "regression":
        raise UserError(f"task is 'regression', but {config.data} has classes to predict; leave it out")


def _beside(data: str) -> tuple[str, ...]:
    """Return a warning where a folder of silos has a data set's name, and may be what was meant."""
    try:
        silos = count_silos(Path(data))
    except UserError:  # no such folder, or none of silos: the data set's own files, perhaps
        return ()
    return (f"data is the data set {data}; the folder of the same name, with {silos} silos, is ./{data}",)


# A comparison assembles one data set again and again: the last one stays at hand.
_load_once = functools.lru_cache(maxsize=1)(load_data)


@functools.lru_cache(maxsize=1)
def _read_once(folder: Path, label: str | None, stamps: tuple[int, ...]) -> list[RawSilo]:
    return read_silos(folder, label)


def _silos(config: RunConfig) -> Material:
    folder = Path(config.data)
    stamps = tuple(path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))) if folder.is_dir() else ()
    agreed = None if config.schema is None else read_schema(Path(config.schema))
    if agreed is not None:
        check_agreed(agreed, config.task, config.label)
    label = config.label or (agreed.label if agreed else None)
    silos = _read_once(folder.absolute(), label, stamps)
    if config.label is not None and all(silo.columns is None for silo in silos):
        raise UserError(f"label is {config.label!r}, but npz files have their targets in y; leave it out")
    # Over all rows, before any are held out: a federation agrees on its schema before anyone splits anything.
    schema = agreed or make_schema(silos, config.task)
    material = silo_material(config, silos, schema, range(len(silos)))
    task = config.task if agreed is None else agreed.task
    return replace(material, warnings=tuple(silo_doubts(silos, schema, task)))


def silo_material(
    config: RunConfig, silos: Sequence[RawSilo], schema: Schema, numbers: Sequence[int]
) -> Material:
    """Return silos' rows under an agreed schema, each with its share held out; in a silo's own house, of one."""
    clients = Clients.of([apply_schema(schema, silo) for silo in silos], numbers)
    clients = clients.hold_out(config.held_out, config.seed, "test")
    facts = {"names": [silo.name for silo in silos], "note": "; ".join(schema_notes(schema, silos))}
    num_outputs, task = outputs_of(schema)
    return Material(clients, num_outputs, task, facts, schema)


def outputs_of(schema: Schema) -> tuple[int, Task]:
    """Return how many outputs a model under this schema has, and what it learns."""
    if schema.labels is None:
        return 1, regression(schema.target_scale)
    return len(schema.labels), CLASSIFICATION


def _per_channel(value: float | Sequence[float], x: Tensor) -> Tensor:
    """Return a shift or scale that broadcasts over samples: one number, or one a channel."""
    tensor = torch.as_tensor(value, dtype=torch.get_default_dtype())
    return tensor.reshape(-1, *[1] * (x.ndim - 2)) if tensor.ndim else tensor


def assemble(
    config: RunConfig,
    clients: Clients | Material | None = None,
    model: nn.Module | Callable[..., nn.Module] | None = None,
    method: Method | None = None,
    data_dir: Path | None = None,
) -> Setup:
    """Return what a description stands for. Clients, model or method that are given come in its place."""
    if method is None:
        checks.one_of("method", config.method.name, METHODS)  # before any data is touched
    if isinstance(clients, Material):
        material = clients
    else:
        material = (
            load_material(config, data_dir) if clients is None else given_material(clients, config.task)
        )
    device, facts, task = _device(config.device), dict(material.facts), material.task
    clients = _dirty(material, config).hold_out(config.validation, config.seed).to(device)
    facts |= {
        "task": task.name,
        "poisoned": list(config.poisoned),
        "sizes": [len(positions) for positions in clients.train],
        "test_sizes": [len(positions) for positions in clients.test],
        "groups": None if clients.groups is None else list(clients.groups),
    }
    shape = tuple(clients.x.shape[1:])
    flat, w = first_models(config, shape, material.num_outputs, clients.numbers, model, device)
    method = _plainly(method) if method else method_of(config, clients.groups)
    optimizer = optimizer_of(config, method)
    batching = Batching(config.batch_size, config.epochs, config.steps)
    precision = resolve(config.precision, device)
    with own_stream(config.seed, device):  # whatever is tried here draws from nobody's stream
        check_model(flat, clients, material.num_outputs, task)
        how = TrainingConfig(optimizer, batching, config.seed, task, precision=precision)
        training = Trainer(flat, replace(how, draws_when_scored=draws(flat, clients.few()[0])))
        choice = choose_engine(config.engine, training, clients, w)
    training = training.changed(engine=choice.engine, chunk=choice.chunk)
    wanted = config.compile == "auto" and compile_pays(training, clients, config.rounds)
    if config.compile == "on" and device.type != "cuda":
        raise UserError(f"compile is on, but it is for GPUs, and this is {device.type}; leave it out")
    flat.compile(wanted or config.compile == "on")
    facts |= {
        "input_shape": list(clients.x.shape[1:]),
        "num_outputs": material.num_outputs,
        "shift": None if clients.shift is None else clients.shift.flatten().tolist(),
        "scale": None if clients.scale is None else clients.scale.flatten().tolist(),
        "parameters": flat.num_params,
        "engine": choice.engine,
        "engine_why": choice.why,
        "threads": choice.threads,
        "precision": precision,
        "compiled": flat.compiled,
        "device": str(device),
        "hyperparameters": {f.name: _plain(getattr(method, f.name)) for f in fields(method)},
        "optimizer": optimizer.name,
        "lr": optimizer.lr,
    }
    tamper = _tampering(config, clients, flat)
    return Setup(method, training, clients, w, choice, facts, material.schema, tamper, material.warnings)


def given_material(clients: Clients, asked: str) -> Material:
    """Return what there is to learn from samples that were handed over; the task goes by the targets' type."""
    targets = clients.y.cpu().numpy()
    task = guess_task([targets]) if asked == "auto" else asked
    warnings = tuple(task_doubts([targets], asked))
    if task == "regression":
        numbers = clients.y.to(torch.get_default_dtype())
        return Material(replace(clients, y=numbers), 1, regression(), {}, warnings=warnings)
    _check_class_numbers(clients)
    classes = clients.y.long()
    if classes.min() == classes.max():
        warnings += (f"all targets are {int(classes[0])}, so there is nothing to tell apart; look at y",)
    return Material(replace(clients, y=classes), int(classes.max()) + 1, CLASSIFICATION, {}, warnings=warnings)


def _check_class_numbers(clients: Clients) -> None:
    """Raise where targets do not number classes from 0: cut to whole numbers they would be other classes."""
    cure = "expected classes numbered from 0, or task='regression' for amounts"
    for place, number in enumerate(clients.numbers):
        y = clients.y[torch.cat([part[place] for part in (clients.train, clients.test) if part])]
        wrong = y[(y < 0) | (y != y.round())] if y.is_floating_point() else y[y < 0]
        if len(wrong):
            raise UserError(f"client {number} has the label {wrong[0].item()}; {cure}")
    largest, samples = int(clients.y.max()), len(clients.y)
    if largest >= max(samples, MOST_CLASSES):
        raise UserError(f"the largest label is {largest}, but there are {samples} samples in all; {cure}")


def _dirty(material: Material, config: RunConfig) -> Clients:
    """Return the clients with wrong labels, where they are asked for."""
    if config.label_noise and material.task.name == "regression":
        raise UserError("label_noise is for classification; this task is regression, leave it out")
    noise, who = config.label_noise, config.noisy_clients
    return material.clients.with_label_noise(noise, material.num_outputs, config.seed, who)


def _tampering(config: RunConfig, clients: Clients, flat: FlatModel) -> Tamper:
    for number in config.poisoned:
        if not 0 <= number < len(clients):
            raise UserError(f"poisoned client is {number}; expected numbers from 0 to {len(clients) - 1}")
    if len(set(config.poisoned)) == len(clients):
        raise UserError("all clients are poisoned; expected at least one that is not")
    return poison(config.poisoned, config.poison_scale, flat.num_params)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plainly(method: Method) -> Method:
    """Return a user's own method with hyperparameters of Python's own types, as a method by name has them."""
    given = {f.name: getattr(method, f.name) for f in fields(method)}
    changed = {name: value for name, value in checks.plain(given).items() if type(value) is not type(given[name])}
    return replace(method, **changed) if changed else method


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    checks.one_of("device", name.split(":")[0], ["auto", "cpu", "cuda"])
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device is {name!r}, but torch sees no CUDA device here; take cpu or auto")
    device = torch.device(name)
    if device.type == "cuda" and device.index is not None:
        if device.index >= torch.cuda.device_count():
            raise UserError(f"device is {name!r}, but there are {torch.cuda.device_count()} GPUs, numbered from 0")
        torch.cuda.set_device(device)  # memory is measured, and graphs are recorded, on the current one
    return device


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
    except Exception as error:  # torch copies no tensor that hangs in a graph
        why = " ".join(str(error).split())[:200]
        raise UserError(
            f"the model {type(model).__name__} can't be copied ({why}); give one that has not been used yet, or detach "
            "what it keeps of its last pass"
        ) from None


def method_of(config: RunConfig, groups: tuple[int, ...] | None = None) -> Method:
    """Return the method that a description names; `groups` are the clients' true ones, for an oracle."""
    parameters = dict(config.method.parameters)
    if parameters.get("self_weight") == "oracle":
        parameters["self_weight"] = oracle_self_weight(groups)
    return make_method(config.method.name, **parameters)


def optimizer_of(config: RunConfig, method: Method) -> Optimizer:
    """Return the optimiser that a description names, or the method's own; the method must be able to take it."""
    name = config.optimizer or method.optimizer
    own = method.lr if name == method.optimizer else DEFAULT_LR.get(name, 1e-3)
    lr = own if config.lr is None else config.lr
    optimizer = Optimizer(name, lr, config.momentum, config.weight_decay)
    check_optimizer(method, optimizer)
    return optimizer
