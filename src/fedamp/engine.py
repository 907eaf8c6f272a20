"""Which way to train: all clients at once, or one at a time. By a stated rule, not by the clock."""

import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.func import vmap

from fedamp import checks
from fedamp.batches import Batching
from fedamp.clients import Clients
from fedamp.local import Training
from fedamp.rows import Rows

ENGINES = ("auto", "stacked", "loop")

STACKED_ON_CPU = 100_000
"""Parameters up to which stacking pays on a CPU: beyond, one client's matrices fill the cores by themselves."""

SMALL = STACKED_ON_CPU
"""Parameters up to which a CPU trains with one thread: more threads gain nothing there, and on a busy machine they
wait for each other (seen: 40 times slower)."""

STACK_VALUES = 1 << 27
"""Parameters that are stacked at once, over all clients: bounds the memory of gradients and moments."""


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

    `auto` stacks where there is more than one client, and the device is a GPU or the model has at most
    STACKED_ON_CPU parameters; else it loops. A module that vmap can't take is looped in any case.
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
    fault = _fault(training, clients, w, "stacked")
    if fault is not None:
        if (really := _fault(training, clients, w, "loop")) is not None:
            raise ValueError(f"a training step of {type(training.model.module).__name__} fails: {really}")
        name = type(training.model.module).__name__
        warning = f"{name} can't be trained for all clients at once ({fault}); clients train one at a time instead"
        return loop("vmap can't take the model", warning)
    why = "asked for" if requested == "stacked" else f"{num_params} parameters on {device.type}"
    return Choice("stacked", chunk, threads, why)


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
    probe = replace(training, batching=Batching(min(4, training.batching.batch_size), steps=1), engine=way)
    two = torch.arange(min(2, len(clients)))
    try:
        with warnings.catch_warnings():
            # torch warns where an operation has no batched form and is looped inside: slower than our own loop.
            warnings.filterwarnings("error", message=".*performance drop.*")
            some = clients.take(two)
            ended = probe.local(some, 1).run(w[two.to(w.params.device)], _gradient)
            x, _ = some.samples(torch.stack([positions[:1] for positions in some.train]))
            if way == "stacked":
                vmap(lambda params, buffers, x: training.model(params, buffers, x, False))(
                    ended.params, ended.buffers, x
                )
    except Exception as error:  # whatever a user's module does under vmap
        return re.split(r"(?<=[a-z)])\. |\n", str(error).strip())[0][:240] or type(error).__name__
    return None


def _gradient(w: Tensor, grad: object) -> Tensor:
    return grad(w)  # type: ignore[no-any-return, operator]


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
