"""What a finished run leaves for those who come later: the server's state after the last round.

It has the size of a few models for each client: of FedAMP one, of AutoAMP three, of FedAvg one for all of them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from fedamp.errors import UserError
from fedamp.records.checkpoints import state_of, state_tensors
from fedamp.records.reading import STATE
from fedamp.records.tensor_file import write_tensors
from fedamp.rows import State


@dataclass(frozen=True)
class LastState:
    """The server's state after round k, the last one."""

    k: int
    server: State

    @property
    def header(self) -> str:
        """What its file says besides the tensors."""
        return json.dumps({"k": self.k, "num_clients": self.server.num_clients})

    def to(self, device: torch.device) -> LastState:
        """Return the same on a device."""
        state = self.server
        return LastState(
            self.k,
            State(
                state.num_clients,
                {name: rows.to(device) for name, rows in state.rows.items()},
                {name: pairs.to(device) for name, pairs in state.pairs.items()},
                {name: rows.to(device) for name, rows in state.shared.items()},
            ),
        )

    def digest(self) -> str:
        """Return a short digest: by it a newcomer's record says which run it joined."""
        total = hashlib.sha256(self.header.encode())
        for name, tensor in sorted(state_tensors("server", self.server).items()):
            array = tensor.detach().cpu().contiguous().numpy()
            total.update(f"{name} {array.dtype} {array.shape}".encode())
            total.update(array.tobytes())
        return total.hexdigest()[:16]


def write_last_state(folder: Path, last: LastState) -> None:
    """Write it to a run's folder."""
    write_tensors(folder / STATE, state_tensors("server", last.server), {"fedamp": last.header})


def read_last_state(folder: Path) -> LastState:
    """Return the last state of a finished run."""
    path = folder / STATE
    if not path.exists():
        raise UserError(
            f"{folder} has no {STATE}: an earlier version wrote it, which kept nothing for newcomers; run it again"
        )
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()["fedamp"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is not a dict)
        return LastState(header["k"], state_of("server", header["num_clients"], tensors))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} can't be read ({error}); the folder is damaged") from None
