"""What a run will need, before it is run: memory and work.

On a CPU the memory is measured: the data are read as the run would read them, a miniature of the run is played with two
numbers of clients, and a line through both peaks says what all of them take. On a GPU, and where the system does not
tell how much a process holds, it is counted from shapes: states, messages, moments, gradients, activations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fedamp.config import RunConfig
from fedamp.methods import Method
from fedamp.methods.alone_beside import AloneBeside
from fedamp.models.dropout import own_stream
from fedamp.models.flat_model import FlatModel
from fedamp.records.privacy import Promised
from fedamp.rows import Rows, State
from fedamp.runs.memory.miniature import play_miniature
from fedamp.runs.memory.process_memory import forget_peak, peak, resident
from fedamp.training.torch_switches import give_back_freed_memory

if TYPE_CHECKING:
    from fedamp.runs.setup import Setup

GIB = 1 << 30

FEWEST, MOST_BYTES = 4, 1 << 27
"""A miniature has a quarter of the clients, as long as their rows take less than MOST_BYTES, but at least FEWEST."""

LINE = 512
"""Bytes that the record of a round holds for each client: scores, losses and weights, as Python's numbers."""


@dataclass(frozen=True)
class Needs:
    """Bytes beyond the program itself, where the run is trained; and sample passes."""

    data: int  # the samples of all clients
    models: int  # states of both sides, old and new, and what travels
    total: int  # of all, at the peak: reading the data, or playing a round
    program: int | None  # the program itself, with all that it imports; None if the system does not say
    measured: bool  # whether the total is measured, or counted from shapes
    free: int | None  # there now, for the run; None if that is not known
    passes: int  # samples that all clients go through, in all rounds

    @property
    def fits(self) -> bool:
        """Whether there is room for it."""
        return self.free is None or self.total <= self.free


def needs(config: RunConfig, setup: Setup, program: int | None = None) -> Needs:
    """Return what a run needs; `program` is what this process held before the setup was made (`resident`)."""
    clients, w = setup.clients, setup.w
    batching = setup.trainer.config.batching
    trained = 2 if isinstance(setup.method, AloneBeside) else 1  # models of a client, one after the other
    free, here = free_memory(w.params.device), resident()
    if w.params.device.type == "cpu" and free is not None and program is not None and here is not None:
        free += max(0, here - program)  # what this process has taken since would be the run's own
    measured = None if program is None else measured_peak(config, setup, program)
    data, states = _bytes(clients.x) + _bytes(clients.y), models(setup.method, w)
    return Needs(
        data=data,
        models=states,
        # What must be there is the least, even where a small run's growth hides in what the process held already.
        total=data + states + training(setup) if measured is None else max(measured, data + states),
        program=program,
        measured=measured is not None,
        free=free,
        passes=trained * config.rounds * sum(batching.samples(len(positions)) for positions in clients.train),
    )


def measured_peak(config: RunConfig, setup: Setup, program: int) -> int | None:
    """Return by how many bytes the run's process would grow at most, or None if that can't be measured here."""
    reading = peak()
    if setup.w.params.device.type != "cpu" or reading is None or not forget_peak():
        return None
    m, points = len(setup.clients), {}
    xi = play_miniature(config, setup, 1).xi  # what is loaded on the way is there afterwards, and is counted in both
    for few in miniatures(m, setup.trainer.model.num_params * setup.w.params.element_size()):
        give_back_freed_memory()
        forget_peak()
        play_miniature(config, setup, few)
        points[few] = (peak() or 0) - program
    kept = config.rounds * m * (LINE + (0 if xi is None else 2 * m * xi.element_size()))  # weights: a list and a stack
    return max(reading - program, on_a_line(points, m)) + kept


def miniatures(num_clients: int, row: int) -> list[int]:
    """Return with how many clients a run is tried, given the bytes of a row: twice, or once with all of few."""
    many = min(num_clients, max(FEWEST, min(num_clients // 4, MOST_BYTES // row)))
    return [many] if many == num_clients else [many // 2, many]


def on_a_line(points: dict[int, int], x: int) -> int:
    """Return the value at x of the line through the last two points; it does not fall.

    >>> on_a_line({2: 10, 4: 14}, 10), on_a_line({3: 5}, 3)
    (26, 5)
    """
    known = list(points.items())
    (x1, y1), (x2, y2) = known[0], known[-1]
    return y2 if x1 == x2 else round(y2 + max(0.0, (y2 - y1) / (x2 - x1)) * (x - x2))


def training(setup: Setup) -> int:
    """Return the bytes of the clients that are trained at once, from shapes: moments, gradients, activations."""
    trainer, clients = setup.trainer, setup.clients
    together = min(trainer.chunks.size, len(clients)) if trainer.config.engine == "stacked" else 1
    batch = min(trainer.config.batching.batch_size, max(len(positions) for positions in clients.train))
    row = trainer.model.num_params * setup.w.params.element_size()
    x, _ = clients.samples(clients.train[0][:1])
    # Of each client that is trained: its row, two moments, the gradient, the direction and what it is made of.
    return together * (6 * row + batch * activations(trainer.model, x))


def models(method: Method, w: Rows) -> int:
    """Return the bytes of a method's states, twice (a round makes new ones), and of one message each way.

    The states are made of rows without memory, on torch's `meta` device.
    """
    hollow = w.to("meta")
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


def in_words(need: Needs, config: RunConfig, setup: Setup) -> tuple[list[str], str | None]:
    """Return the needs in words, and a warning if they are more than there is."""
    facts, choice, rounds = setup.facts, setup.choice, config.rounds
    together = f"{min(setup.trainer.chunks.size, len(setup.clients))} at once"
    way = f"{choice.engine} ({together})" if choice.engine == "stacked" else choice.engine
    samples = sum(len(positions) for positions in setup.clients.train)
    beyond = "" if need.program is None else f", beyond the {need.program / GIB:.2f} GiB of the program itself"
    source = "measured with a few clients and steps" if need.measured else "counted from shapes"
    lines = [
        f"clients     {len(setup.clients)}, with {samples} training samples in all",
        f"model       {facts.parameters} parameters",
        f"way         {way} on {facts.device} in {facts.precision}: {choice.why}",
        f"work        {need.passes} sample passes in {rounds} round{'' if rounds == 1 else 's'}{_beside(setup.method)}",
        f"memory      {need.total / GIB:.2f} GiB at the peak{beyond if need.measured else ''}; {source}",
        f"of it       data {need.data / GIB:.2f}, models and messages {need.models / GIB:.2f}",
    ]
    if facts.privacy is not None:
        lines.append(f"privacy     {Promised.of(facts.privacy).plan}")
    if need.free is not None:
        lines.append(f"free        {need.free / GIB:.2f} GiB")
    if need.fits:
        return lines, None
    return lines, (
        f"this run needs about {need.total / GIB:.1f} GiB, and {(need.free or 0) / GIB:.1f} GiB are free; use fewer "
        "clients, a smaller model or batch, or another device"
    )
