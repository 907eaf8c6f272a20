"""The clients' half of a round: all who take part together, or a chunk after the other if rows are kept elsewhere.

Both give the same: a method's client half treats each client by itself (`tests/methods/test_conformance.py`). So a
chunk of clients is a smaller federation, all of it on the device that trains, and no method knows where rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedamp.methods import Local, Method
from fedamp.row_store import RowStore, moved, use_store, write
from fedamp.rows import Message, Rows, State
from fedamp.training.trainer import Trainer

LocalFor = Callable[[Tensor], Local]
"""From clients' positions to their local training."""


@dataclass(frozen=True)
class Trained:
    """What the clients who take part have made of what they received."""

    clients: State
    received: Message
    reply: Message
    local: Local  # with the record of the round: losses, and what was spent


ClientHalf = Callable[[Method, State, Message, Tensor, LocalFor], Trained]
"""From all clients' states and messages, and the positions of those who take part."""


def together(method: Method, clients: State, message: Message, who: Tensor, local_for: LocalFor) -> Trained:
    """Let all who take part train as one stack."""
    part, received = _taking_part(clients, message, who)
    local = local_for(who)
    part, reply = method.client_update(part, received, local)
    return Trained(part, received, reply, local)


def client_half(store: RowStore, trainer: Trainer) -> ClientHalf:
    """Return the way for rows that are kept in this store."""
    return partial(chunk_by_chunk, store, trainer) if store.apart else together


def chunk_by_chunk(
    store: RowStore,
    trainer: Trainer,
    method: Method,
    clients: State,
    message: Message,
    who: Tensor,
    local_for: LocalFor,
) -> Trained:
    """Let some clients at a time train on the store's device, and keep what they make of it in the store.

    The chunks are those in which all clients at once would have been trained, so that the numbers are the same.
    """
    part, received = _taking_part(clients, message, who)
    everyone: Any = local_for(who)
    sizes = everyone.sizes[:, 0].tolist()
    order = torch.tensor(sorted(range(len(who)), key=lambda i: -sizes[i]))
    made = _Gathered(store, len(who))

    def work(some: slice) -> None:
        places = order[some]
        local: Any = local_for(who[places])
        with use_store(None):  # what clients compute with is all on their device
            state, reply = method.client_update(
                State(
                    len(places),
                    _moved(part.rows, store.device, places),
                    shared={name: rows.to(store.device) for name, rows in part.shared.items()},
                ),
                _moved(received, store.device, places),
                local,
            )
        kinds = {"state": state.rows, "reply": reply}
        made.write(places, {(kind, name): rows for kind, those in kinds.items() for name, rows in those.items()})
        for name, loss in local.losses.items():
            everyone.losses.setdefault(name, loss.new_empty(len(who), device="cpu"))[places] = loss.cpu()
        for place, spent in zip(places.tolist(), local.spent, strict=True):
            everyone.spent[place] = spent

    trainer.in_chunks(len(who), work)
    return Trained(part.replace(rows=made.of("state")), received, made.of("reply"), everyone)


def _taking_part(clients: State, message: Message, who: Tensor) -> tuple[State, Message]:
    """Return states and messages of those who take part; of all clients, which is usual, as they are."""
    if len(who) == clients.num_clients:
        return clients, message
    return clients.take(who), {name: rows[who.to(rows.params.device)] for name, rows in message.items()}


def _moved(entries: Mapping[str, Rows], device: torch.device, places: Tensor) -> dict[str, Rows]:
    """Return the rows at some places, on a device."""
    return {
        name: Rows(moved(rows.params, device, places), moved(rows.buffers, device, places))
        for name, rows in entries.items()
    }


@dataclass(frozen=True)
class _Gathered:
    """Stacks of all n clients in a store, written chunk by chunk."""

    store: RowStore
    total: int
    stacks: dict[tuple[str, str], Rows] = field(default_factory=dict)

    def write(self, places: Tensor, chunk: Mapping[tuple[str, str], Rows]) -> None:
        """Write a chunk's rows to their places. Entries that are one thing, as a state and its reply, share a stack."""
        written: dict[int, Rows] = {}  # by stack
        for name, rows in chunk.items():
            if name not in self.stacks:
                twins = (
                    self.stacks[other] for other, theirs in chunk.items() if other in self.stacks and theirs is rows
                )
                self.stacks[name] = next(twins, None) or self._new(rows)
            stack = self.stacks[name]
            if written.get(id(stack)) is rows:
                continue
            if id(stack) in written:  # two that were one so far are not any more
                stack = self.stacks[name] = self._new(rows, stack)
            write(stack.params, rows.params, places)
            write(stack.buffers, rows.buffers, places)
            written[id(stack)] = rows

    def of(self, kind: str) -> dict[str, Rows]:
        """Return the stacks of one kind, by name."""
        return {name: rows for (group, name), rows in self.stacks.items() if group == kind}

    def _new(self, like: Rows, values: Rows | None = None) -> Rows:
        parts = [self.store.empty((self.total, part.shape[1]), part.dtype) for part in (like.params, like.buffers)]
        if values is not None:
            parts[0].copy_(values.params)
            parts[1].copy_(values.buffers)
        return Rows(*parts)
