"""Where all clients' rows are kept, and why: by the memory that they would take, and what is free."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.methods import Method
from fedamp.ranks.launched import SharedError
from fedamp.row_store import CPU, DEVICE, DISK, GIB, HOST, RowStore, free_memory
from fedamp.rows import Rows
from fedamp.runs.memory.counted import kept_apart, models, stack, training
from fedamp.training.trainer import Trainer

ROOM = 0.85
"""Share of what is free that rows and training may take by count: methods make copies, and memory has gaps."""
SURELY = 32
"""Stacks of all rows that a run needs at most, whatever its method does: where so many fit, nothing is counted."""
UNKNOWN = 6
"""Stacks that a user's own method is taken to need, if it can't be asked with rows that have no values."""
CHUNK_SHARE = 0.2
"""Share of a GPU's free memory that states and messages of the clients in training may take if rows are not there."""


@dataclass(frozen=True)
class Placed:
    """Where rows are kept, why, and how many clients are trained at once at most."""

    store: RowStore
    why: str
    chunk: int


def place_rows(
    config: RunConfig,
    trainer: Trainer,
    clients: Clients,
    method: Method,
    w: Rows,
    one_client: bool = False,
    one_process: bool = True,
) -> Placed:
    """Return where a run keeps its rows.

    `auto` is the device, if models, messages and training take at most ROOM of what is free there; else the host, if
    the device is a GPU and they take at most ROOM of what is free on the host; else the disk. A silo, or a newcomer, is
    one client, whose row is where it trains; and so are the rows of several processes.
    """
    device, chunk = clients.x.device, trainer.chunks.size
    if one_client:
        place, why = DEVICE, "it is one client"
    elif not one_process:
        place, why = DEVICE, "several processes share the clients"
        if config.rows not in ("auto", DEVICE):
            raise SharedError(
                f"rows is {config.rows!r}, but of several processes each keeps its rows on its device; leave --rows "
                "out, or start one process"
            )
    else:
        place, why = (config.rows, "asked for") if config.rows != "auto" else _auto(trainer, clients, method, w)
    free = free_memory(device) if place != DEVICE and device.type == "cuda" else None
    if free is not None:
        each = max(1, _counted(models, method, w[:1]))
        chunk = min(chunk, max(1, int(CHUNK_SHARE * free / each)))
    return Placed(RowStore(device, place), why, chunk)


def _auto(trainer: Trainer, clients: Clients, method: Method, w: Rows) -> tuple[str, str]:
    device, one = clients.x.device, stack(w)
    free = free_memory(device)
    if free is None or SURELY * one <= free:
        return DEVICE, f"a row for each client takes {one / GIB:.2f} GiB in all"
    need = _counted(models, method, w) + training(trainer, clients)
    if need <= ROOM * free:
        return DEVICE, f"models, messages and training take {need / GIB:.1f} GiB"
    short = (
        f"models, messages and training take {need / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free on {device.type}"
    )
    if device.type == "cpu":
        return DISK, short
    kept, room = _counted(kept_apart, method, w), free_memory(CPU)
    if room is None or kept <= ROOM * room:
        return HOST, short
    return DISK, f"{short}; the host has {room / GIB:.1f} GiB for the {kept / GIB:.1f} GiB of models and messages"


def _counted(count: Callable[[Method, Rows], int], method: Method, w: Rows) -> int:
    with contextlib.suppress(Exception), torch.no_grad():  # whatever a user's own method does with hollow rows
        return count(method, w)
    return UNKNOWN * stack(w)
