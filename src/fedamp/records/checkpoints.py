"""Checkpoints: all that a run needs to continue, in one file that is either complete or not there.

A checkpoint is a safetensors file: the states' tensors, and in its header a JSON of the rest. It is written under
another name, flushed to the disk and renamed. The last two are kept, or what `Kept` says. It holds no random state:
random numbers come from coordinates.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedamp.records.tensor_file import write_tensors
from fedamp.rows import Rows, State

COST = 0.05
"""Checkpoints may take this share of a run's time."""


@dataclass(frozen=True)
class Kept:
    """Which checkpoints stay when a new one is written: the last ones, and of those before it every so many-th."""

    last: int = 2
    every: int = 0  # rounds; 0 for none
    most: int = 0  # of every so many-th

    def among(self, rounds: Sequence[int]) -> set[int]:
        """Return which of these rounds' checkpoints stay."""
        newest = sorted(rounds, reverse=True)
        seldom = [k for k in newest[self.last :] if self.every and k % self.every == 0]
        return {*newest[: self.last], *seldom[: self.most]}


@dataclass(frozen=True)
class Snapshot:
    """All clients' models after the round in which they did best so far on all held-out samples together."""

    round: int
    score: float  # the higher, the better
    models: Rows
    loss: float = math.inf  # of equal scores the lower is better; not known of what an earlier version saved


@dataclass(frozen=True)
class Checkpoint:
    """A run after round k."""

    k: int
    server: State
    clients: State
    xi: Tensor | None  # (k, m, m), of methods that have it
    how: Mapping[str, Any]  # the way of training, kept on resume: engine, chunk, threads
    best: Mapping[str, Snapshot] = field(default_factory=dict)  # if there is validation: by entry

    def to(self, device: torch.device) -> Checkpoint:
        """Return the same on a device."""
        best = {name: replace(one, models=one.models.to(device)) for name, one in self.best.items()}
        return replace(self, server=self.server.to(device), clients=self.clients.to(device), best=best)


def state_tensors(prefix: str, state: State) -> dict[str, Tensor]:
    """Return a state as named tensors, for a file."""
    named = {}
    for kind in ("rows", "shared"):
        for name, rows in getattr(state, kind).items():
            named[f"{prefix}/{kind}/{name}/params"] = rows.params
            named[f"{prefix}/{kind}/{name}/buffers"] = rows.buffers
    named |= {f"{prefix}/pairs/{name}": pairs for name, pairs in state.pairs.items()}
    return named


def state_of(prefix: str, num_clients: int, tensors: Mapping[str, Tensor]) -> State:
    """Return the state that `state_tensors` named with this prefix."""
    kinds: dict[str, dict[str, Any]] = {"rows": {}, "shared": {}, "pairs": {}}
    for key, tensor in tensors.items():
        side, kind, *rest = key.split("/")
        if side != prefix:
            continue
        if kind == "pairs":
            kinds[kind][rest[0]] = tensor
        elif rest[1] == "params":
            kinds[kind][rest[0]] = Rows(tensor, tensors[f"{side}/{kind}/{rest[0]}/buffers"])
    return State(num_clients, **kinds)


def save_checkpoint(folder: Path, checkpoint: Checkpoint, kept: Kept | None = None) -> None:
    """Write a checkpoint, then delete all but those that are kept."""
    tensors = {**state_tensors("server", checkpoint.server), **state_tensors("clients", checkpoint.clients)}
    if checkpoint.xi is not None:
        tensors["xi"] = checkpoint.xi
    best = State(0, rows={entry: snapshot.models for entry, snapshot in checkpoint.best.items()})
    tensors |= state_tensors("best", best)
    header = {
        "k": checkpoint.k,
        "num_clients": checkpoint.server.num_clients,
        "how": dict(checkpoint.how),
        "best": {entry: [snapshot.round, snapshot.score, snapshot.loss] for entry, snapshot in checkpoint.best.items()},
    }
    path = folder / f"checkpoint-{checkpoint.k:07d}.safetensors"
    write_tensors(path, tensors, {"fedamp": json.dumps(header)})
    files = {_round(path): path for path in _files(folder)}
    for k in files.keys() - (kept or Kept()).among(list(files)):
        files[k].unlink(missing_ok=True)


def load_checkpoint(folder: Path, device: torch.device) -> Checkpoint | None:
    """Return the newest checkpoint that is complete, or None."""
    for path in _files(folder):
        if (found := _load(path, device)) is not None:
            return found
    return None


def complete_checkpoints(folder: Path) -> list[int]:
    """Return the rounds after which a checkpoint is kept and complete."""
    return sorted(_round(path) for path in _files(folder) if _load(path, torch.device("cpu")) is not None)


def forget_later(folder: Path, k: int) -> None:
    """Delete the checkpoints of rounds after k, the newest first: what is left at any moment is a run to continue."""
    for path in _files(folder):
        if _round(path) > k:
            path.unlink(missing_ok=True)


def _load(path: Path, device: torch.device) -> Checkpoint | None:
    """Return a checkpoint, or None if it is not complete."""
    with contextlib.suppress(SafetensorError, OSError, KeyError, ValueError):
        with safe_open(path, framework="pt", device=str(device)) as file:
            header = json.loads(file.metadata()["fedamp"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is not a dict)
        xi = tensors.pop("xi", None)
        m = header["num_clients"]
        states = state_of("server", m, tensors), state_of("clients", m, tensors)
        kept = state_of("best", m, tensors).rows
        scores = header.get("best", {})
        best = {entry: Snapshot(k, score, kept[entry], *loss) for entry, (k, score, *loss) in scores.items()}
        return Checkpoint(header["k"], *states, None if xi is None else xi.cpu(), header["how"], best)
    return None


def forget_checkpoints(folder: Path) -> None:
    """Delete all checkpoints: the run has finished."""
    for path in _files(folder):
        path.unlink(missing_ok=True)


def forget_parts(folder: Path) -> None:
    """Delete what is left of checkpoints in whose midst a run was killed: they are as large as whole ones."""
    for path in folder.glob(".checkpoint-*.safetensors.part"):
        path.unlink(missing_ok=True)


def _round(path: Path) -> int:
    return int(path.stem.removeprefix("checkpoint-"))


def _files(folder: Path) -> list[Path]:
    """Return the checkpoints, the newest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"), reverse=True)


@dataclass
class Pace:
    """Says when a checkpoint is due: so seldom that all of them together take at most COST of the time."""

    cost: float = 0.0  # seconds that the last one took to write
    last: float = field(default_factory=time.perf_counter)

    def due(self) -> bool:
        """Return whether enough time has passed since the last checkpoint."""
        return time.perf_counter() - self.last >= self.cost * (1 / COST - 1)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Measure how long it takes to write one."""
        began = time.perf_counter()
        yield
        self.last = time.perf_counter()
        self.cost = self.last - began
