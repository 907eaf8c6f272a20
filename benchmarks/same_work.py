"""The same work for us and for others: clients, model, method and minibatches; and our own round of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from fedamp import models
from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.methods import FedAMP, FedAvg, Method
from fedamp.models.flat_model import FlatModel
from fedamp.runs.material import load_material
from fedamp.runs.round import play_round
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.stacked_or_loop import choose_engine
from fedamp.training.torch_switches import use_threads
from fedamp.training.trainer import Trainer

NUM_CLIENTS, CLASSES = 20, 10
LR = 0.005  # of plain SGD, which is what PFLlib has
SIGMA, ALPHA, LAM = 1.0, 0.04, 1.0  # of FedAMP; ALPHA keeps every self weight of 20 clients positive
METHODS = ("FedAvg", "FedAMP")


@dataclass(frozen=True)
class Work:
    """What a round has to do: one pass of plain SGD over every client's samples, and the server's part of a method.

    Sizes are multiples of the batch: PFLlib leaves out what does not fill one.
    """

    clients: Clients
    module: nn.Module  # with the first parameters, the same for all clients
    batch: int
    method: str = METHODS[0]
    lam: float = LAM

    def samples(self) -> list[tuple[Tensor, Tensor]]:
        """Return each client's own inputs and targets."""
        return [self.clients.samples(positions) for positions in self.clients.train]

    @property
    def num_samples(self) -> int:
        """Samples of all clients together, each of which is seen once in a round."""
        return sum(len(positions) for positions in self.clients.train)

    @property
    def num_steps(self) -> int:
        """Optimiser steps of all clients together in a round."""
        return self.num_samples // self.batch


class Player(Protocol):
    """Somebody who can do this work: we, or a peer."""

    def round(self) -> None:
        """Play one round: send, train every client, receive and aggregate. No evaluation."""

    def follow(self, batches: Sequence[Sequence[Tensor]]) -> None:
        """Take these minibatches in the next round: each client's positions in the pool, step by step."""

    def models(self) -> Tensor:
        """Return the models after the last round: FedAvg's global one `(1, d)`, FedAMP's of all clients `(n, d)`."""


class Ours:
    """Our own round, in the way of training that `fedamp run` chooses; without scores and records."""

    def __init__(self, work: Work) -> None:
        self.work, self.k = work, 0
        flat = FlatModel(copy.deepcopy(work.module))
        first = flat.row().repeat(len(work.clients))
        self.first = first.params.clone()
        trainer = Trainer(flat, TrainingConfig(Optimizer("sgd", LR), Batching(work.batch, epochs=1)))
        self.choice = choose_engine("auto", trainer, work.clients, first)
        way = {"engine": self.choice.engine, "chunk": self.choice.chunk, "workers": self.choice.workers}
        self.trainer = trainer.changed(**way)
        self.method = method_of(work)
        self.server, self.states = self.method.server_init(first), self.method.client_init(first)

    def round(self) -> None:
        """Play one round: send, train every client, receive and aggregate. No evaluation."""
        self.k += 1
        with use_threads(self.choice.threads):
            played = play_round(
                self.method,
                self.server,
                self.states,
                self.k,
                local_for=lambda who: self.trainer.local(self.work.clients.take(who), self.k),
                present=torch.ones(len(self.work.clients), dtype=torch.bool),
            )
        self.server, self.states = played.server, played.clients

    def batches(self) -> list[list[Tensor]]:
        """Return the minibatches of the next round: each client's positions in the pool, step by step."""
        local = self.trainer.local(self.work.clients, self.k + 1)
        return [local.batches(i) for i in range(len(self.work.clients))]

    def models(self) -> Tensor:
        """Return the models after the last round: FedAvg's global one `(1, d)`, FedAMP's of all clients `(n, d)`."""
        held = self.server.shared if self.work.method == "FedAvg" else self.server.rows
        return held["w"].params.clone()


def method_of(work: Work) -> Method:
    """Return our method as the peers have it: FedAMP as printed (Eq. 5), training from where the last round ended."""
    if work.method == "FedAvg":
        return FedAvg()
    return FedAMP(form="gradient", sigma=SIGMA, alpha=ALPHA, lam=work.lam, start="w")


def flat_parameters(modules: Sequence[nn.Module]) -> Tensor:
    """Return the parameters of some modules as rows `(n, d)`."""
    return torch.stack([torch.cat([p.detach().reshape(-1) for p in module.parameters()]) for module in modules])


def whole_batches(clients: Clients, batch: int) -> Clients:
    """Return the same clients without the samples that do not fill a minibatch."""
    train = [positions[: len(positions) // batch * batch] for positions in clients.train]
    return Clients.of([clients.samples(positions) for positions in train])


def in_float64(work: Work, batches: int = 4) -> Work:
    """Return the same with float64 numbers and at most so many minibatches of each client: to compare models."""
    pairs = [(x[: batches * work.batch].double(), y[: batches * work.batch]) for x, y in work.samples()]
    return replace(work, clients=Clients.of(pairs), module=copy.deepcopy(work.module).double())


def digits(model: str) -> Work:
    """Return the digits as `fedamp run` shares them out (practical setting): 20 clients, batch 10."""
    clients = whole_batches(load_material(RunConfig(data="digits", clients=NUM_CLIENTS)).clients, batch=10)
    module = models.build(models.MODELS[model], tuple(clients.x.shape[1:]), CLASSES, 0)
    return Work(clients, module, batch=10)


def pictures() -> Work:
    """Return 20 clients with 200 random pictures each and a CNN of 582,026 parameters, batch 20."""
    g = torch.Generator().manual_seed(0)
    each = 200
    pairs = [
        (torch.rand(each, 1, 28, 28, generator=g), torch.randint(CLASSES, (each,), generator=g))
        for _ in range(NUM_CLIENTS)
    ]
    return Work(Clients.of(pairs), models.build(cnn_without_padding, (1, 28, 28), CLASSES, 0), batch=20)


def cnn_without_padding(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return federated averaging's CNN without padding, as PFLlib and FL-bench have it for MNIST."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, num_outputs),
    )


CASES: dict[str, Callable[[], Work]] = {
    "digits, mlp, batch 10": lambda: digits("mlp"),
    "digits, cnn-small, batch 10": lambda: digits("cnn-small"),
    "28x28, CNN of 582 k, batch 20": pictures,
}
