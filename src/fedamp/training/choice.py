"""Which way to train: all clients at once, or one at a time. By a stated rule, not by the clock."""

import contextlib
import ctypes
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedamp import checks
from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.models.dropout import streams
from fedamp.models.flat import FlatModel
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.evaluate import outputs
from fedamp.training.local import Training
from fedamp.training.stacked.same_as_loop import same_as_loop

ENGINES = ("auto", "stacked", "loop")

STACKED_ON_CPU = 110_000
"""Parameters up to which stacking pays on a CPU: beyond, the rows of all clients together do not stay in its caches."""

STACKED_WORK = 25_000_000
"""Multiply-adds of a client's forward pass over a minibatch, up to which it pays: beyond, a client's own matrices are
large enough to be fast, and grouped convolutions are slower than plain ones. Measured in docs/performance.md."""

SMALL = 100_000
"""Parameters up to which a CPU trains with one thread: more threads gain nothing there, and on a busy machine they
wait for each other (seen: 40 times slower)."""

STACK_VALUES = 1 << 27
"""Parameters that are stacked at once on a CPU, over all clients: bounds the memory of gradients and moments."""

MEMORY_SHARE = 0.4
"""Of a GPU's free memory, what the clients that are stacked at once may take: recorded passes need it twice."""

COMPILE_PAYS = 2e14
"""Parameters times sample passes of a run, from which torch.compile saves more than it takes: some 10 s a shape."""

COMPILE_SHAPES = 6
"""Shapes of a stack's batches, over which it is never worth while."""


@dataclass(frozen=True)
class Choice:
    """The way that was taken, and why."""

    engine: str  # "stacked" or "loop"
    chunk: int  # clients stacked at once, at the most
    threads: int  # of torch on the CPU
    why: str
    warning: str | None = None


def choose_engine(requested: str, training: Training, clients: Clients, w: Rows) -> Choice:
    """Return how to train these clients.

    `auto` stacks where there is more than one client, and the device is a GPU or the model has at most STACKED_ON_CPU
    parameters and a client's step takes at most STACKED_WORK multiply-adds; else it loops. A module that vmap can't
    take is looped in any case.
    """
    checks.one_of("engine", requested, ENGINES)
    device, num_params = clients.x.device, training.model.num_params
    chunk = max(1, STACK_VALUES // num_params)
    threads = 1 if device.type == "cpu" and num_params <= SMALL else torch.get_num_threads()
    loop = partial(Choice, "loop", chunk, threads)
    if requested == "loop":
        return loop("asked for")
    if requested == "auto":
        if len(clients) == 1:
            return loop("there is one client")
        if device.type == "cpu" and num_params > STACKED_ON_CPU:
            return loop(f"{num_params} parameters on a CPU, more than {STACKED_ON_CPU}")
        if device.type == "cpu" and (work := step_work(training, clients)) > STACKED_WORK:
            return loop(f"{work} multiply-adds a step on a CPU, more than {STACKED_WORK}")
    if training.model.side_by_side and not same_as_loop(training.model, clients.few()):
        training.model.only_vmap()
    fault = _fault(training, clients, w, "stacked")
    if fault is not None and training.model.side_by_side:  # known layers in an unknown place: vmap may take them
        training.model.only_vmap()
        fault = _fault(training, clients, w, "stacked")
    if fault is not None:
        if (really := _fault(training, clients, w, "loop")) is not None:
            raise UserError(f"a training step of {type(training.model.module).__name__} fails: {really}")
        name = type(training.model.module).__name__
        warning = f"{name} can't be trained for all clients at once ({fault}); clients train one at a time instead"
        return loop("vmap can't take the model", warning)
    why = "asked for" if requested == "stacked" else f"{num_params} parameters on {device.type}"
    if device.type == "cuda":
        chunk = _chunk_for_memory(training, clients, w)
    return Choice("stacked", chunk, threads, why)


def step_work(training: Training, clients: Clients) -> int:
    """Return the multiply-adds of one client's forward pass over one minibatch."""
    row, sample = training.model.row(), clients.train[0][:2]
    x, _ = clients.samples(sample)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        training.model(row.params[0], row.buffers[0], x, training=False)
    batch = min(training.batching.batch_size, max(len(positions) for positions in clients.train))
    return int(counter.get_total_flops()) // 2 // len(sample) * batch


def compile_pays(training: Training, clients: Clients, rounds: int) -> bool:
    """Return whether torch.compile repays its own time in a run: on a GPU, with much to do in few shapes."""
    if clients.x.device.type != "cuda" or training.engine != "stacked" or not training.model.side_by_side:
        return False
    sizes = sorted(len(positions) for positions in clients.train)
    batching = training.batching
    passes = rounds * sum(batching.samples(size) for size in sizes)
    shapes = {(size, cut[1] - cut[0]) for size in sizes for cut in batching.cuts(size)}
    return passes * training.model.num_params >= COMPILE_PAYS and len(shapes) <= COMPILE_SHAPES


def _chunk_for_memory(training: Training, clients: Clients, w: Rows) -> int:
    """Return how many clients fit a GPU's memory, from what a step of two takes. Too many are halved on the way."""
    two = torch.arange(min(2, len(clients)))
    probe = replace(training, batching=Batching(training.batching.batch_size, steps=1), engine="stacked")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    probe.local(clients.take(two), 1).run(w[two.to(w.params.device)], _gradient)
    each = max(1.0, (torch.cuda.max_memory_allocated() - before) / len(two))
    torch.cuda.empty_cache()
    return max(1, int(MEMORY_SHARE * torch.cuda.mem_get_info()[0] / each))


@contextlib.contextmanager
def use_threads(threads: int) -> Iterator[None]:
    """Let torch use this many threads inside, and as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fault(training: Training, clients: Clients, w: Rows, way: str) -> str | None:
    """Return why one step of two clients fails in one of the two ways, or None where it does not."""
    # A model of its own, and two steps: what a pass leaves behind in a module must not be there when the run begins.
    model = FlatModel(training.model.fresh())
    if not training.model.side_by_side:
        model.only_vmap()
    batching = Batching(min(4, training.batching.batch_size), steps=2)
    probe = replace(training, model=model, batching=batching, engine=way)
    two = torch.arange(min(2, len(clients)))
    try:
        with warnings.catch_warnings():
            # torch warns where an operation has no batched form and is looped inside: slower than our own loop.
            warnings.filterwarnings("error", message=".*performance drop.*")
            some, before = clients.take(two), streams(clients.x.device)
            ended = probe.local(some, 1).run(w[two.to(w.params.device)], _gradient)
            x, _ = some.samples(torch.stack([positions[:1] for positions in some.train]))
            if way == "stacked":
                outputs(probe, ended, x, some.numbers)
                if streams(clients.x.device) != before:
                    return "it draws from a global stream of random numbers, once for all clients"
                model(ended.params[0], ended.buffers[0], x[0], training=False)  # one alone, after all at once
    except Exception as error:  # whatever a user's module does under vmap
        return re.split(r"(?<=[a-z)])\. |\n", str(error).strip())[0][:240] or type(error).__name__
    return None


def _gradient(w: Tensor, grad: object) -> Tensor:
    return grad(w)  # type: ignore[no-any-return, operator]


def keep_freed_memory() -> None:
    """Let the C library keep what a step frees for the next one: getting pages anew can take a third of a CPU's time.

    For glibc alone, and for the rest of the process; elsewhere nothing happens.
    """
    trim, from_map = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(trim, 1 << 30)
        library.mallopt(from_map, 1 << 25)


@contextlib.contextmanager
def use_deterministic(wanted: bool) -> Iterator[None]:
    """Let torch take only algorithms that give the same bits every time, where that is wanted."""
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
