"""What a run will need, before it is run: memory and work. Estimates, from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fedamp.methods import Method
from fedamp.methods.alone_beside import AloneBeside
from fedamp.models.dropout import own_stream
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows, State

if TYPE_CHECKING:
    from fedamp.runs.setup import Setup

GIB = 1 << 30


@dataclass(frozen=True)
class Needs:
    """Bytes on the device that trains, and sample passes."""

    data: int  # the samples of all clients
    models: int  # states of both sides, old and new, and what travels
    training: int  # of the clients that are trained at once: moments, gradients, activations
    free: int | None  # on the device now; None if that is not known
    passes: int  # samples that all clients go through, in all rounds

    @property
    def total(self) -> int:
        """All bytes together."""
        return self.data + self.models + self.training

    @property
    def fits(self) -> bool:
        """Whether there is room for it."""
        return self.free is None or self.total <= self.free


def needs(setup: Setup, rounds: int) -> Needs:
    """Return what a federation needs for a number of rounds."""
    training, clients, w = setup.trainer, setup.clients, setup.w
    sizes = [len(positions) for positions in clients.train]
    batching = training.config.batching
    trained = 2 if isinstance(setup.method, AloneBeside) else 1  # models of a client, one after the other
    passes = trained * rounds * sum(batching.samples(size) for size in sizes)
    together = min(training.chunks.size, len(clients)) if training.config.engine == "stacked" else 1
    batch = min(batching.batch_size, max(sizes))
    row = training.model.num_params * w.params.element_size()
    x, _ = clients.samples(clients.train[0][:1])
    # Of each client that is trained: its row, two moments, the gradient, the direction and what it is made of.
    each = 6 * row + batch * activations(training.model, x)
    return Needs(
        data=_bytes(clients.x) + _bytes(clients.y),
        models=models(setup.method, w),
        training=together * each,
        free=free_memory(w.params.device),
        passes=passes,
    )


def models(method: Method, w: Rows) -> int:
    """Return the bytes of a method's states, twice (a round makes new ones), and of one message each way.

    The states are made of rows without memory, on torch's `meta` device.
    """
    hollow = Rows(w.params.to("meta"), w.buffers.to("meta"))
    states = _state(method.server_init(hollow)) + _state(method.client_init(hollow))
    return 2 * states + 2 * len(w) * (w.params.shape[1] + w.buffers.shape[1]) * w.params.element_size()


def _state(state: State) -> int:
    kept = [*state.rows.values(), *state.shared.values()]
    return sum(rows.params.numel() * rows.params.element_size() for rows in kept)


def activations(model: FlatModel, x: Tensor) -> int:
    """Return the bytes that a training pass keeps for one sample: each layer's output, and its gradient."""
    kept = 0

    def count(module: nn.Module, args: object, output: object) -> None:
        nonlocal kept
        if isinstance(output, Tensor):
            kept += 2 * _bytes(output)

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


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that are free on a device, or None if the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":") for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _beside(method: Method) -> str:
    return ", half of them for the models trained alone (--alone)" if isinstance(method, AloneBeside) else ""


def in_words(setup: Setup, rounds: int) -> tuple[list[str], str | None]:
    """Return the needs in words, and a warning if they are more than there is."""
    need, facts, choice = needs(setup, rounds), setup.facts, setup.choice
    together = f"{min(setup.trainer.chunks.size, len(setup.clients))} at once"
    way = f"{choice.engine} ({together})" if choice.engine == "stacked" else choice.engine
    samples = sum(len(positions) for positions in setup.clients.train)
    lines = [
        f"clients     {len(setup.clients)}, with {samples} training samples in all",
        f"model       {facts.parameters} parameters",
        f"way         {way} on {facts.device} in {facts.precision}: {choice.why}",
        f"work        {need.passes} sample passes in {rounds} round{'' if rounds == 1 else 's'}{_beside(setup.method)}",
        f"memory      {need.total / GIB:.2f} GiB: data {need.data / GIB:.2f}, models {need.models / GIB:.2f}, "
        f"training {need.training / GIB:.2f}",
    ]
    if need.free is not None:
        lines.append(f"free        {need.free / GIB:.2f} GiB")
    if need.fits:
        return lines, None
    return lines, (
        f"this run needs about {need.total / GIB:.1f} GiB, and {(need.free or 0) / GIB:.1f} GiB are free; use fewer "
        "clients, a smaller model or batch, or another device"
    )
