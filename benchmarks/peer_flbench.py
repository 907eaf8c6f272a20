"""FL-bench as a player: its own server, trainer and client, one client after another, with the same samples."""

from __future__ import annotations

import copy
import importlib
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from same_work import CLASSES, LR, Work
from torch import Tensor

HOW = "git clone https://github.com/KarhouTam/FL-bench, install its requirements, then --flbench FL-bench"
METHODS = ("FedAvg",)  # of those that are compared here


def missing(folder: Path | None) -> str | None:
    """Return why FL-bench can't take part, or None if it can."""
    if folder is None or not (folder / "src" / "client").is_dir():
        return f"no FL-bench {'given' if folder is None else f'in {folder}'}: {HOW}"
    sys.path.insert(0, str(folder.resolve()))
    try:
        importlib.import_module("src.server.fedavg")
    except ImportError as error:
        return f"{error}: {HOW}"
    return None


class FLbench:
    """An FL-bench server that was made without its files of data and settings, and that never evaluates."""

    def __init__(self, work: Work) -> None:
        server_module = importlib.import_module("src.server.fedavg")
        trainer = importlib.import_module("src.utils.trainer").FLbenchTrainer
        mode = importlib.import_module("src.utils.constants").MODE
        self.work = work
        n = len(work.clients)
        server = self.server = server_module.FedAvgServer.__new__(server_module.FedAvgServer)
        server.args = arguments(work)
        server.model = copy.deepcopy(work.module)
        server.public_model_params = OrderedDict(
            (name, parameter.detach().clone()) for name, parameter in server.model.named_parameters()
        )
        server.selected_clients = list(range(n))
        server.client_local_epoches = [1] * n
        server.client_optimizer_states = {i: {} for i in range(n)}
        server.client_lr_scheduler_states = {i: {} for i in range(n)}
        server.clients_personal_model_params = {i: {} for i in range(n)}
        server.client_metrics = {i: {} for i in range(n)}
        server.current_epoch, server.verbose = 0, False
        server.trainer = trainer(
            server=server,
            client_cls=server.client_cls,
            mode=mode.SERIAL,
            num_workers=0,
            init_args={
                "model": copy.deepcopy(work.module),
                "optimizer_cls": partial(torch.optim.SGD, lr=LR),
                "lr_scheduler_cls": None,
                "args": server.args,
                "dataset": dataset(work),
                "data_indices": [{"train": mine.tolist(), "val": [], "test": []} for mine in work.clients.train],
                "device": torch.device("cpu"),
                "return_diff": False,
            },
        )

    def round(self) -> None:
        """Do what it does in a round."""
        self.server.train_one_round()

    def follow(self, batches: Sequence[Sequence[Tensor]]) -> None:
        """Take these minibatches in the next round."""
        self.server.trainer.worker.trainloader = Given(self.work, self.server.trainer.worker, batches)

    def models(self) -> Tensor:
        """Return the model after the last round."""
        return torch.cat([values.reshape(-1) for values in self.server.public_model_params.values()])[None]


class Given:
    """In place of the worker's loader: given minibatches of the client that the worker stands for just now."""

    def __init__(self, work: Work, worker: Any, batches: Sequence[Sequence[Tensor]]) -> None:
        self.work, self.worker, self.batches = work, worker, batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (self.work.clients.samples(batch) for batch in self.batches[self.worker.client_id])


def dataset(work: Work) -> Any:
    """Return the pool of all clients' samples as FL-bench's own dataset, without transforms."""
    if float(work.clients.x.max()) > 1:
        raise ValueError("FL-bench divides inputs by 255 if one is above 1; expected inputs up to 1, which it keeps")
    base = importlib.import_module("data.utils.datasets").BaseDataset
    return base(data=work.clients.x, targets=work.clients.y, classes=list(range(CLASSES)))


def arguments(work: Work) -> SimpleNamespace:
    """Return what FL-bench's configuration would give, with all evaluation off."""
    off = SimpleNamespace(train=False, val=False, test=False)
    common = SimpleNamespace(
        use_cuda=False,
        buffers="global",
        batch_size=work.batch,
        local_epoch=1,
        reset_optimizer_on_global_epoch=True,
        client_side_evaluation=False,
        test=SimpleNamespace(client=off, server=off),
    )
    return SimpleNamespace(common=common)
