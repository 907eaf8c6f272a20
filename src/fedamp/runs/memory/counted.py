"""What a run's models and training take, counted from shapes: states, messages, moments, gradients, activations."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from fedamp.data.clients import Clients
from fedamp.methods import Method
from fedamp.models.dropout import own_stream
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows, State
from fedamp.training.trainer import Trainer


def training(trainer: Trainer, clients: Clients) -> int:
    """Return the bytes of the clients that are trained at once: moments, gradients, activations."""
    at_once = trainer.chunks.size if trainer.config.engine == "stacked" else trainer.config.workers
    together = min(at_once, len(clients))
    batch = min(trainer.config.batching.batch_size, max(len(positions) for positions in clients.train))
    row = trainer.model.num_params * trainer.model.dtype.itemsize
    x, _ = clients.samples(clients.train[0][:1])
    # Of each client that is trained: its row, two moments, the gradient, the direction and what it is made of.
    return together * (6 * row + batch * activations(trainer.model, x))


def models(method: Method, w: Rows) -> int:
    """Return the bytes of a method's states, twice (a round makes new ones), and of one message each way.

    The states are made of rows without memory, on torch's `meta` device.
    """
    server, clients = _hollow_states(method, w)
    return 2 * (_state(server) + _state(clients)) + 2 * stack(w)


def kept_apart(method: Method, w: Rows) -> int:
    """Return the bytes of all stacks that there are at once if rows are not kept where they are trained.

    Both sides' states, in which what clients reply stands once; the clients' new ones; and one message. It is measured
    in docs/many_clients.md.
    """
    server, clients = _hollow_states(method, w)
    both = {**server.rows, **clients.rows}
    return _rows(both.values()) + _rows(server.shared.values()) + _rows(clients.rows.values()) + stack(w)


def of_a_chunk(method: Method, w: Rows, chunk: int) -> int:
    """Return the bytes that states and messages of the clients of one chunk take while they are trained."""
    return min(chunk, len(w)) * models(method, w[:1])


def stack(w: Rows) -> int:
    """Return the bytes of one row for each client."""
    return w.num_bytes


def _hollow_states(method: Method, w: Rows) -> tuple[State, State]:
    hollow = w.to("meta")
    return method.server_init(hollow), method.client_init(hollow)


def _state(state: State) -> int:
    return _rows([*state.rows.values(), *state.shared.values()])


def _rows(kept: Iterable[Rows]) -> int:
    return sum(num_bytes(rows.params) for rows in kept)


def activations(model: FlatModel, x: Tensor) -> int:
    """Return the bytes that a training pass keeps for one sample: each layer's output, and its gradient."""
    kept = 0

    def count(module: nn.Module, args: object, output: object) -> None:
        nonlocal kept
        if isinstance(output, Tensor):
            kept += 2 * num_bytes(output)

    leaves = [part for part in model.module.modules() if not list(part.children())]
    hooks = [part.register_forward_hook(count) for part in leaves]
    try:
        row = model.row()
        with own_stream(0, x.device), torch.no_grad():
            model(row.params[0], row.buffers[0], x, training=False)
    finally:
        for hook in hooks:
            hook.remove()
    return kept


def num_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's values."""
    return tensor.numel() * tensor.element_size()
