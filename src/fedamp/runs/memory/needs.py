"""What a run will need, before it is run: memory and work.

On a CPU the memory is measured: the data are read as the run would read them, a miniature of the run is played with two
numbers of clients, and a line through both peaks says what all of them take. On a GPU, and where the system does not
tell how much a process holds, it is counted from shapes: states, messages, moments, gradients, activations.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedamp.config import RunConfig
from fedamp.methods import Method
from fedamp.methods.alone_beside import AloneBeside
from fedamp.records.privacy import Promised
from fedamp.row_store import CPU, DEVICE, DISK, GIB, HOST, RowStore, free_memory
from fedamp.runs.memory.counted import kept_apart, models, num_bytes, of_a_chunk, training
from fedamp.runs.memory.miniature import play_miniature
from fedamp.runs.memory.process_memory import forget_peak, peak, resident
from fedamp.training.torch_switches import give_back_freed_memory

if TYPE_CHECKING:
    from fedamp.runs.setup import Setup

FEWEST, MOST_BYTES = 4, 1 << 27
"""A miniature has a quarter of the clients, as long as their rows take less than MOST_BYTES, but at least FEWEST."""

LINE = 512
"""Bytes that the record of a round holds for each client: scores, losses and weights, as Python's numbers."""

PLACES = {DEVICE: "the device", HOST: "the host", DISK: "disk"}
CURES = {
    HOST: "keep them on disk (--rows disk), or use fewer clients or a smaller model",
    DISK: "choose a folder with more room (--out), fewer clients or a smaller model",
}


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
    rows: str = DEVICE  # where all clients' rows are kept
    apart: int = 0  # bytes that they take there, if that is another memory than the one where they are trained
    apart_free: int | None = None  # bytes that are free there now

    @property
    def fits(self) -> bool:
        """Whether there is room for it, in both memories."""
        short = self.free is not None and self.total > self.free
        return not short and not self.short_apart

    @property
    def short_apart(self) -> bool:
        """Whether the rows find too little room where they are kept."""
        return self.apart_free is not None and self.apart > self.apart_free


def needs(config: RunConfig, setup: Setup, program: int | None = None, folder: Path | None = None) -> Needs:
    """Return what a run needs.

    `program` is what this process held before the setup was made (`resident`); `folder` is the one that the run would
    write to.
    """
    clients, w, store = setup.clients, setup.w, setup.store
    batching, device = setup.trainer.config.batching, clients.x.device
    trained = 2 if isinstance(setup.method, AloneBeside) else 1  # models of a client, one after the other
    free, here = free_memory(device), resident()
    if device.type == "cpu" and free is not None and program is not None and here is not None:
        free += max(0, here - program)  # what this process has taken since would be the run's own
    # A file that is mapped counts as the process's memory, although the system may take it back at any time.
    measured = None if program is None or store.place == DISK else measured_peak(config, setup, program)
    elsewhere = store.place == DISK or (store.place == HOST and device.type != "cpu")
    data = num_bytes(clients.x) + num_bytes(clients.y)
    states = of_a_chunk(setup.method, w, setup.trainer.chunks.size) if elsewhere else models(setup.method, w)
    return Needs(
        data=data,
        models=states,
        # What must be there is the least, even where a small run's growth hides in what the process held already.
        total=data + states + training(setup.trainer, clients) if measured is None else max(measured, data + states),
        program=program,
        measured=measured is not None,
        free=free,
        passes=trained * config.all_rounds * sum(batching.samples(len(positions)) for positions in clients.train),
        rows=store.place,
        apart=kept_apart(setup.method, w) if elsewhere else 0,
        apart_free=_free_apart(store, folder) if elsewhere else None,
    )


def _free_apart(store: RowStore, folder: Path | None) -> int | None:
    """Return the bytes that are free where rows are kept apart; a run's folder may not be there yet."""
    if store.place == HOST:
        return free_memory(CPU)
    place = (store.files if folder is None else folder).absolute()
    return shutil.disk_usage(next(path for path in (place, *place.parents) if path.exists())).free


def measured_peak(config: RunConfig, setup: Setup, program: int) -> int | None:
    """Return by how many bytes the run's process would grow at most, or None if that can't be measured here."""
    reading = peak()
    if setup.clients.x.device.type != "cpu" or reading is None or not forget_peak():
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


def _beside(method: Method) -> str:
    return ", half of them for the models trained alone (--alone)" if isinstance(method, AloneBeside) else ""


def in_words(need: Needs, config: RunConfig, setup: Setup) -> tuple[list[str], str | None]:
    """Return the needs in words, and a warning if they are more than there is."""
    facts, choice = setup.facts, setup.choice
    rounds = f"{config.rounds} round{'' if config.rounds == 1 else 's'}"
    rounds += f" and {config.then_alone} alone" if config.then_alone else ""
    together = f"{min(setup.trainer.chunks.size, len(setup.clients))} at once"
    way = f"{choice.engine} ({together})" if choice.engine == "stacked" else choice.engine
    samples = sum(len(positions) for positions in setup.clients.train)
    beyond = "" if need.program is None else f", beyond the {need.program / GIB:.2f} GiB of the program itself"
    source = "measured with a few clients and steps" if need.measured else "counted from shapes"
    lines = [
        f"clients     {len(setup.clients)}, with {samples} training samples in all",
        f"model       {facts.parameters} parameters",
        f"way         {way} on {facts.device} in {facts.precision}: {choice.why}",
        f"work        {need.passes} sample passes in {rounds}{_beside(setup.method)}",
        f"memory      {need.total / GIB:.2f} GiB at the peak{beyond if need.measured else ''}; {source}",
        f"of it       data {need.data / GIB:.2f}, models and messages {need.models / GIB:.2f}",
        f"rows        on {PLACES[need.rows]}: {facts.rows_why}",
    ]
    if need.apart:
        room = "" if need.apart_free is None else f"; {need.apart_free / GIB:.2f} GiB are free there"
        lines.append(f"on {need.rows:<9}{need.apart / GIB:.2f} GiB of models and messages at the peak{room}")
    if setup.shard.team is not None:
        lines.append(
            f"processes   {setup.shard.processes} processes share the training; each holds all data and the server's "
            "models, and may need up to that memory"
        )
    if facts.privacy is not None:
        lines.append(f"privacy     {Promised.of(facts.privacy).plan}")
    if need.free is not None:
        lines.append(f"free        {need.free / GIB:.2f} GiB")
    if need.fits:
        return lines, None
    if need.short_apart:
        return lines, (
            f"this run keeps about {need.apart / GIB:.1f} GiB of models and messages on {PLACES[need.rows]}, and "
            f"{(need.apart_free or 0) / GIB:.1f} GiB are free there; {CURES[need.rows]}"
        )
    return lines, (
        f"this run needs about {need.total / GIB:.1f} GiB, and {(need.free or 0) / GIB:.1f} GiB are free; use fewer "
        "clients, a smaller model or batch, or another device"
    )
