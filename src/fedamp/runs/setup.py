"""From a configuration to things that can be played: data, first models, method, way of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.data.given.samples import Given
from fedamp.data.silos.schema import Schema
from fedamp.errors import UserError
from fedamp.methods import METHODS, Method, Separate
from fedamp.methods.alone_beside import AloneBeside
from fedamp.methods.newcomer import Joining
from fedamp.models.dropout import own_stream
from fedamp.models.flat_model import FlatModel
from fedamp.ranks.team import team
from fedamp.records.facts import Facts
from fedamp.row_store import RowStore
from fedamp.rows import Rows
from fedamp.runs.judging import (
    NOTHING_OWN,
    OwnParts,
    check_loss,
    choice_warnings,
    judged_task,
    judging_warnings,
    positive_word,
    undefined_warnings,
)
from fedamp.runs.material import Material, given_material, load_material
from fedamp.runs.memory.placing import place_rows
from fedamp.runs.newcomers.newcomer import ROUNDS, as_newcomer, kept_out, setup_of
from fedamp.runs.parts import device_of, first_models, method_of, optimizer_of, with_plain_values
from fedamp.runs.protection import Protection, protection
from fedamp.runs.shard import ONE_PROCESS, Shard
from fedamp.runs.simulated_faults import Tamper, draw_present, poison
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.model_check import check_model, check_private
from fedamp.training.precision import resolve
from fedamp.training.stacked.same_as_loop import draws
from fedamp.training.stacked_or_loop import Choice, choose_engine, compile_pays
from fedamp.training.trainer import Trainer

Model = nn.Module | Callable[..., nn.Module]
"""A module, or a function that builds one."""


@dataclass(frozen=True)
class Setup:
    """Everything that a run needs, made from its configuration."""

    method: Method
    trainer: Trainer
    clients: Clients
    w: Rows  # the first models, (m, d)
    choice: Choice  # the way of training, and why
    facts: Facts  # what is written down about data, model and way
    schema: Schema | None  # of a user's own silos
    tamper: Tamper
    store: RowStore  # where all clients' rows are kept
    warnings: tuple[str, ...] = ()  # about data, and method with model: what was guessed, or may not be intended
    newcomers: tuple[Setup, ...] = ()  # of the clients that are kept out and join afterwards, each by itself
    shard: Shard = ONE_PROCESS  # which of the clients are with this process

    def as_before(self, way: Mapping[str, Any]) -> Setup:
        """Return the same with the way of training that a checkpoint was made with: the last digits depend on it."""
        # With another number of processes the cores are shared otherwise: threads and workers are those of now. A
        # checkpoint of an earlier version has no workers: its clients had all threads, one after another.
        as_many = way.get("processes", 1) == self.shard.processes
        threads = way["threads"] if as_many else self.choice.threads
        workers = way.get("workers", 1) if as_many else self.choice.workers
        trainer = self.trainer.changed(engine=way["engine"], chunk=way["chunk"], workers=workers)
        choice = replace(self.choice, engine=way["engine"], chunk=way["chunk"], threads=threads, workers=workers)
        facts = replace(self.facts, engine=choice.engine, threads=choice.threads, workers=choice.workers)
        return replace(self, trainer=trainer, choice=choice, facts=facts)

    def writing_to(self, folder: Path | None) -> Setup:
        """Return the same with rows that are kept on disk in this folder; without one, where temporary files are."""
        return replace(self, store=replace(self.store, folder=folder))

    @property
    def way(self) -> dict[str, Any]:
        """The way of training, as a checkpoint holds it."""
        return {
            "engine": self.choice.engine,
            "chunk": self.trainer.chunks.size,
            "threads": self.choice.threads,
            "workers": self.choice.workers,
            "device": self.store.device.type,
            **({} if self.shard.team is None else {"processes": self.shard.processes}),
        }


def assemble(
    config: RunConfig,
    clients: Clients | Material | None = None,
    model: Model | None = None,
    method: Method | None = None,
    data_dir: Path | None = None,
    own: OwnParts = NOTHING_OWN,
    together: bool = True,
) -> Setup:
    """Return what a configuration describes. Clients, model, method or own parts that are given replace what it names.

    In a silo the clients are not `together`: there is one, and what the others have is not known.
    """
    if method is None:
        checks.one_of("method", config.method.name, METHODS)  # before any data is touched
    material = _material(config, clients, data_dir)
    if config.newcomers and material.newcomers is None:
        material = _keep_out(config, material)
    material = replace(material, task=judged_task(config, material.task, material.num_outputs, material.labels, own))
    us = team() if together else None  # before the way of training is chosen: it depends on this process's cores
    device = device_of(config.device)
    whole = _with_wrong_labels(material, config)
    clients = whole.hold_out(config.validation, config.seed, called=material.facts.names).to(device)
    shape = tuple(clients.x.shape[1:])
    flat, w = first_models(config, shape, material.num_outputs, clients.numbers, model, device)
    given, method = method, with_plain_values(method) if method else method_of(config, clients.groups)
    if config.class_weights == "balanced":
        clients = clients.balanced(material.num_outputs)
    unscored, without = undefined_warnings(material.task, clients, material.facts.names, together)
    few = choice_warnings(material.task, clients) if together else []
    trainer = _trainer(config, material, clients, flat, method, device)
    names = _names(material, clients)
    safe = protection(config, method, trainer, clients, w, names, _presence(config, len(clients)))
    if safe is not None:
        trainer = trainer.changed(privacy=safe.privacy)
    trainer, choice = _way_of_training(config, trainer, clients, w, 1 if us is None else us.size)
    doubts = method.doubts(trainer.local(clients, 1))
    beside = config.alone and not isinstance(method, Separate)  # which is that model itself
    played = AloneBeside(method) if beside else method
    placed = place_rows(config, trainer, clients, played, w, one_client=not together, one_process=us is None)
    trainer, choice = trainer.changed(chunk=placed.chunk), replace(choice, chunk=placed.chunk)
    work = [trainer.config.batching.samples(len(positions)) for positions in clients.train]
    shard = Shard.of(us, work, device)
    setup = Setup(
        method=played,
        trainer=trainer,
        clients=clients,
        w=w.to(placed.store.home),
        choice=choice,
        facts=replace(
            _facts(config, material, clients, trainer, choice, method),
            undefined=without or None,
            privacy=None if safe is None else safe.promised.to_dict(),
            rows_in=placed.store.place,
            rows_why=placed.why,
            processes=None if shard.team is None else shard.processes,
        ),
        schema=material.schema,
        tamper=_tampering(config, clients, flat),
        store=placed.store,
        warnings=(
            *material.warnings,
            *judging_warnings(config, material.task, material.labels),
            *unscored,
            *few,
            *doubts,
            *(safe.warnings if safe else ()),
        ),
        shard=shard,
    )
    late = _newcomers(config, material, setup, model, given)
    of_late = tuple(text for each in late for text in each.warnings)
    return replace(setup, newcomers=late, warnings=(*setup.warnings, *of_late))


def _keep_out(config: RunConfig, material: Material) -> Material:
    """Return the same with some clients kept out, none of whose samples anyone else trains on."""
    clients, names = material.clients, material.facts.names
    out = kept_out(config, len(clients))
    late = clients.take(torch.tensor(out))
    stay = clients.take(torch.tensor([i for i in range(len(clients)) if i not in out])).without_samples_of(late)
    if names is None:
        return replace(material, clients=stay, newcomers=late)
    facts = replace(material.facts, names=[name for i, name in enumerate(names) if i not in out])
    return replace(material, clients=stay, newcomers=late, facts=facts, newcomer_names=tuple(names[i] for i in out))


def _newcomers(
    config: RunConfig, material: Material, setup: Setup, model: Model | None, method: Method | None
) -> tuple[Setup, ...]:
    """Return a setup for each client that is kept out: the run's, with its own samples and its own first model."""
    if material.newcomers is None:
        return ()
    device, late = setup.store.device, _with_wrong_labels(replace(material, clients=material.newcomers), config)
    shape = tuple(late.x.shape[1:])
    names = material.newcomer_names or [f"client {number}" for number in late.numbers]
    found = []
    for i, name in enumerate(names):
        mine = late.take(torch.tensor([i])).hold_out(config.validation, config.seed, called=[name]).to(device)
        if config.class_weights == "balanced":
            mine = mine.balanced(material.num_outputs)
        _, w = first_models(config, shape, material.num_outputs, mine.numbers, model, device)
        # An oracle knows the newcomer's group as it knows the others'.
        groups = None if mine.groups is None else (*(setup.clients.groups or ()), *mine.groups)
        meets = method_of(config, groups) if method is None else with_plain_values(method)
        unscored, without = undefined_warnings(material.task, mine, [name], together=False)
        late_one = replace(setup_of(setup, meets, mine, name), w=w.to(setup.store.home), warnings=tuple(unscored))
        late_one = replace(late_one, facts=replace(late_one.facts, undefined=without or None))
        safe = protection(as_newcomer(config, ROUNDS), meets, setup.trainer, mine, w, [name])
        found.append(late_one if safe is None else _protected(late_one, safe))
    return tuple(found)


def _protected(setup: Setup, safe: Protection) -> Setup:
    """Return the same with its samples protected in this way."""
    return replace(
        setup,
        trainer=setup.trainer.changed(privacy=safe.privacy),
        facts=replace(setup.facts, privacy=safe.promised.to_dict()),
        warnings=(*setup.warnings, *safe.warnings),
    )


def _presence(config: RunConfig, num_clients: int) -> Callable[[int], Tensor]:
    """Return who takes part in round k."""
    return lambda k: draw_present(config.seed, k, num_clients, config.absent)


def _material(config: RunConfig, clients: Clients | Material | None, data_dir: Path | None) -> Material:
    if isinstance(clients, Material):
        return clients
    return load_material(config, data_dir) if clients is None else given_material(Given(clients), config.task)


def _with_wrong_labels(material: Material, config: RunConfig) -> Clients:
    """Return the clients with wrong labels, by accident or by an attack, if some are asked for."""
    if config.label_noise and material.task.name == "regression":
        raise UserError("label_noise is for classification, but this task is regression; leave it out")
    if config.attack == "labels" and material.task.name == "regression":
        raise UserError("attack is 'labels', which is for classification, but this task is regression; leave it out")
    noise, who = config.label_noise, config.noisy_clients
    noisy = material.clients.with_label_noise(noise, material.num_outputs, config.seed, who)
    return noisy.with_flipped_labels(material.num_outputs, config.poisoned if config.attack == "labels" else ())


def _trainer(
    config: RunConfig, material: Material, clients: Clients, flat: FlatModel, method: Method, device: torch.device
) -> Trainer:
    """Return what trains the clients; model and loss are tried."""
    how = TrainingConfig(
        optimizer=optimizer_of(config, method),
        batching=Batching(config.batch_size, config.epochs, config.steps),
        seed=config.seed,
        task=material.task,
        # With samples of their own, gradients are measured against the clip: in as many bits as there are for it.
        precision=resolve(config.precision, device, _tells_pictures(flat, material) and not config.private),
    )
    with own_stream(config.seed, device):  # whatever is tried here draws from nobody's stream
        check_model(flat, clients, material.num_outputs, material.task)
        if config.private:
            check_private(flat, clients)
        check_loss(material.task, *_few_answers(flat, clients), config.class_weights == "balanced")
        return Trainer(flat, replace(how, draws_when_scored=draws(flat, clients.few()[0])))


def _tells_pictures(flat: FlatModel, material: Material) -> bool:
    """Return whether a model is a net of convolutions that tells classes, in float32."""
    convolves = any(isinstance(part, nn.Conv2d) for part in flat.module.modules())
    return convolves and material.task.name == "classification" and flat.dtype == torch.float32


def _way_of_training(
    config: RunConfig, trainer: Trainer, clients: Clients, w: Rows, processes: int
) -> tuple[Trainer, Choice]:
    """Return the trainer for all at once or for one at a time, and why."""
    flat, device = trainer.model, clients.x.device
    with own_stream(config.seed, device):
        choice = choose_engine(config.engine, trainer, clients, w, processes)
    trainer = trainer.changed(engine=choice.engine, chunk=choice.chunk, workers=choice.workers)
    pays = config.compile == "auto" and compile_pays(trainer, clients, config.rounds)
    if config.compile == "on" and device.type != "cuda":
        raise UserError(f"compile is on, but it is for GPUs, and this is {device.type}; leave it out")
    flat.compile(pays or config.compile == "on")
    return trainer, choice


def _few_answers(flat: FlatModel, clients: Clients) -> tuple[Tensor, Tensor]:
    """Return the first model's outputs on some training samples of the first client, and the targets."""
    x, y = clients.samples(clients.train[0][:3])
    row = flat.row()
    return flat(row.params[0], row.buffers[0], x, training=False)[0], y


def _facts(
    config: RunConfig, material: Material, clients: Clients, trainer: Trainer, choice: Choice, method: Method
) -> Facts:
    """Return what is written down about a run besides its configuration."""
    plain = method.method if isinstance(method, Joining) else method
    return replace(
        material.facts,
        names=_names(material, clients),
        task=material.task.name,
        positive=positive_word(material.task, material.labels),
        poisoned=list(config.poisoned),
        sizes=[len(positions) for positions in clients.train],
        test_sizes=[len(positions) for positions in clients.test],
        validation_sizes=[len(positions) for positions in clients.validation] or None,
        groups=None if clients.groups is None else list(clients.groups),
        input_shape=list(clients.x.shape[1:]),
        num_outputs=material.num_outputs,
        encoded=None if config.label is None and material.schema is None else material.schema is not None,
        shift=None if clients.shift is None else clients.shift.flatten().tolist(),
        scale=None if clients.scale is None else clients.scale.flatten().tolist(),
        parameters=trainer.model.num_params,
        engine=choice.engine,
        engine_why=choice.why,
        threads=choice.threads,
        workers=choice.workers,
        precision=trainer.config.precision,
        compiled=trainer.model.compiled,
        device=str(clients.x.device),
        hyperparameters={each.name: _listed(getattr(plain, each.name)) for each in fields(plain)},
        optimizer=trainer.config.optimizer.name,
        lr=trainer.config.optimizer.lr,
    )


def _names(material: Material, clients: Clients) -> list[str] | None:
    """Return the clients' names; if some were kept out, all have one: a client's place is not its number any more."""
    if material.facts.names is None and material.newcomers is not None:
        return [f"client {number}" for number in clients.numbers]
    return material.facts.names


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _tampering(config: RunConfig, clients: Clients, flat: FlatModel) -> Tamper:
    for number in config.poisoned:
        if not 0 <= number < len(clients):
            raise UserError(f"poisoned client is {number}; expected numbers from 0 to {len(clients) - 1}")
    if len(set(config.poisoned)) == len(clients):
        raise UserError("all clients are poisoned; expected at least one that is not")
    liars = config.poisoned if config.attack == "models" else ()
    return poison(liars, config.poison_scale, flat.num_params)
