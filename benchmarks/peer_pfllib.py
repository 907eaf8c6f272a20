"""PFLlib as a player: its own server and clients, with the same samples in the files that it reads."""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from same_work import ALPHA, CLASSES, LR, SIGMA, Work, flat_parameters
from torch import Tensor
from torch.utils.data import DataLoader

HOW = "git clone https://github.com/TsingZ0/PFLlib, pip install h5py scikit-learn matplotlib, then --pfllib PFLlib"


def missing(folder: Path | None) -> str | None:
    """Return why PFLlib can't take part, or None if it can."""
    if folder is None or not (folder / "system" / "flcore").is_dir():
        return f"no PFLlib {'given' if folder is None else f'in {folder}'}: {HOW}"
    sys.path.insert(0, str(folder.resolve() / "system"))
    try:
        importlib.import_module("flcore.servers.serveramp")
        importlib.import_module("flcore.servers.serveravg")
    except ImportError as error:
        return f"{error}: {HOW}"
    return None


def write_samples(work: Work, folder: Path) -> None:
    """Write each client's samples as PFLlib's own generators do: dataset/peers/train/0.npz and so on."""
    for part in ("train", "test"):
        (folder / "dataset" / "peers" / part).mkdir(parents=True)
        for i, (x, y) in enumerate(work.samples()):
            with (folder / "dataset" / "peers" / part / f"{i}.npz").open("wb") as file:
                np.savez_compressed(file, data=np.array({"x": x.numpy(), "y": y.numpy()}, dtype=object))


class PFLlib:
    """A PFLlib server. `in_memory`: each client's samples are read once, and not from disk in every round."""

    def __init__(self, work: Work, in_memory: bool = False) -> None:
        self.work = work
        self.folder = tempfile.TemporaryDirectory()
        write_samples(work, Path(self.folder.name))
        self.home = Path(self.folder.name) / "system"  # it reads ../dataset
        self.home.mkdir()
        kind = {"FedAvg": "serveravg", "FedAMP": "serveramp"}[work.method]
        server = getattr(importlib.import_module(f"flcore.servers.{kind}"), work.method)
        with contextlib.chdir(self.home), contextlib.redirect_stdout(io.StringIO()):
            self.server = server(arguments(work), 0)
            if in_memory:
                for client in self.server.clients:
                    self._keep(client, client.load_train_data().dataset)

    def _keep(self, client: object, held: Sequence[tuple[Tensor, Tensor]]) -> None:
        client.load_train_data = lambda: DataLoader(held, self.work.batch, drop_last=True, shuffle=True)

    def round(self) -> None:
        """Do what a round of its `train` does, without evaluating."""
        server = self.server
        with contextlib.chdir(self.home), contextlib.redirect_stdout(io.StringIO()):
            server.selected_clients = server.select_clients()
            server.send_models()
            for client in server.selected_clients:
                client.train()
            server.receive_models()
            if self.work.method == "FedAvg":
                server.aggregate_parameters()

    def follow(self, batches: Sequence[Sequence[Tensor]]) -> None:
        """Take these minibatches in the next round."""
        for client, mine in zip(self.server.clients, batches, strict=True):
            given = [self.work.clients.samples(batch) for batch in mine]
            client.load_train_data = lambda given=given: given

    def models(self) -> Tensor:
        """Return the models after the last round."""
        server = self.server
        held = [server.global_model] if self.work.method == "FedAvg" else [client.model for client in server.clients]
        return flat_parameters(held)


def arguments(work: Work) -> Namespace:
    """Return what PFLlib's command line would give, its defaults where they do not matter here."""
    return Namespace(
        model=copy.deepcopy(work.module),
        algorithm=work.method,
        dataset="peers",
        device="cpu",
        num_classes=CLASSES,
        num_clients=len(work.clients),
        batch_size=work.batch,
        local_learning_rate=LR,
        local_epochs=1,
        alphaK=ALPHA,
        sigma=SIGMA,
        lamda=work.lam,
        global_rounds=1,
        join_ratio=1.0,
        random_join_ratio=False,
        learning_rate_decay=False,
        learning_rate_decay_gamma=0.99,
        client_drop_rate=0.0,
        train_slow_rate=0.0,
        send_slow_rate=0.0,
        time_select=False,
        time_threthold=10000,
        goal="peers",
        save_folder_name="items",
        eval_gap=1,
        top_cnt=100,
        auto_break=False,
        dlg_eval=False,
        dlg_gap=100,
        batch_num_per_client=2,
        num_new_clients=0,
        fine_tuning_epoch=0,
        fine_tuning_epoch_new=0,
        privacy=False,
        dp_sigma=0.0,
        few_shot=0,
    )
