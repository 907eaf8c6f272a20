"""fluke as a player: its own server, clients and channel, with the same samples in its own loaders."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from typing import Any

import torch
from same_work import ALPHA, CLASSES, LR, SIGMA, Work, flat_parameters
from torch import Tensor

HOW = "pip install fluke-fl"


def missing() -> str | None:
    """Return why fluke can't take part, or None if it can."""
    try:
        importlib.import_module("fluke.algorithms.fedavg")
        importlib.import_module("fluke.algorithms.fedamp")
    except ImportError as error:
        return f"{error}: {HOW}"
    return None


class SameSamples:
    """In place of fluke's splitter: everybody's samples as they are, in loaders as fluke's splitter makes them."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def assign(self, n_clients: int, batch_size: int) -> tuple[tuple[list[Any], list[None]], None]:
        """Return each client's training samples; nobody has test samples."""
        from fluke.data import FastDataLoader

        loaders = [
            FastDataLoader(x, y, num_labels=CLASSES, batch_size=batch_size, shuffle=True)
            for x, y in self.work.samples()
        ]
        return (loaders, [None] * n_clients), None


class Fluke:
    """A fluke federation, all in memory, that never evaluates."""

    def __init__(self, work: Work) -> None:
        from fluke import FlukeENV
        from fluke.algorithms.fedamp import FedAMP
        from fluke.algorithms.fedavg import FedAVG

        self.work = work
        FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
        kind = {"FedAvg": FedAVG, "FedAMP": FedAMP}[work.method]
        self.federation = kind(len(work.clients), SameSamples(work), settings(work))

    def round(self) -> None:
        """Do what a round of its `run` does, without progress bars and evaluation."""
        server, clients = self.federation.server, self.federation.clients
        eligible = server.get_eligible_clients(1.0)
        server.broadcast_model(eligible)
        for client in eligible:
            client.local_update(1)
        server.aggregate(clients, server.receive_client_models(eligible, state_dict=False))

    def follow(self, batches: Sequence[Sequence[Tensor]]) -> None:
        """Take these minibatches in the next round: the loader cuts its samples into them, in this order."""
        for client, mine in zip(self.federation.clients, batches, strict=True):
            client.train_set.tensors = self.work.clients.samples(torch.cat(list(mine)))
            client.train_set.shuffle = False

    def models(self) -> Tensor:
        """Return the models after the last round."""
        one = self.work.method == "FedAvg"
        held = [self.federation.server.model] if one else [client.model for client in self.federation.clients]
        return flat_parameters(held)


def settings(work: Work) -> Any:
    """Return fluke's hyperparameters for the same work.

    Its FedAvg weighs clients by their samples only if asked to; its FedAMP divides lambda by the clients' learning rate
    where the paper, PFLlib and we divide by the server's alpha.
    """
    from fluke import DDict

    client: dict[str, Any] = {
        "batch_size": work.batch,
        "local_epochs": 1,
        "loss": "CrossEntropyLoss",
        "optimizer": DDict(name="SGD", lr=LR),
        "scheduler": DDict(name="StepLR", step_size=1, gamma=1),
    }
    server: dict[str, Any] = {"weighted": True}
    if work.method == "FedAMP":
        client |= {"model": copy.deepcopy(work.module), "lam": work.lam * LR / ALPHA}
        server = {"sigma": SIGMA, "alpha": ALPHA}
    return DDict(client=DDict(client), server=DDict(server), model=copy.deepcopy(work.module))
