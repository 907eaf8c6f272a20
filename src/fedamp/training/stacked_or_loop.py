"""Which way to train: all clients at once, or one at a time. By a stated rule, not by the clock."""

import contextlib
import re
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedamp import checks
from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.models.dropout import streams
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.evaluate import outputs
from fedamp.training.side_workers import workers_for
from fedamp.training.stacked.same_as_loop import same_as_loop
from fedamp.training.trainer import Trainer

ENGINES = ("auto", "stacked", "loop")

STACKED_ON_CPU = 110_000
"""Parameters up to which stacking pays on a CPU: beyond that, the rows of all clients do not stay in its caches."""

STACKED_WORK = 25_000_000
"""Multiply-adds of a client's forward pass over a minibatch, up to which it pays: beyond that, a client's own matrices
are large enough to be fast, and grouped convolutions are slower than plain ones. Measured in docs/performance.md."""

SMALL = 100_000
"""Parameters up to which a CPU trains with one thread, unless there is much to do in a step: more threads gain little
there, and on a busy machine they wait for each other (seen: 40 times slower)."""

LAYER_WORK = 500_000
"""Multiply-adds of a client's forward pass over a minibatch in a layer, on average, beyond which a stack of small
models takes all cores: with one thread it would be no faster than a plain loop, whose kernels are large enough there to
be shared by the others. It goes by one client, not by how many there are. Measured in docs/performance.md."""

LOOP_VALUES = 1 << 27
"""Parameters of the clients that train at once in a loop: bounds the memory of gradients and moments."""

STACK_VALUES = 8_000_000
"""Parameters, or values of a minibatch, that are stacked at once on a CPU, over all clients: 32 MB in float32, beyond
which the C library takes new pages for every gradient (`torch_switches.IN_PLACE`). Larger stacks took twice as long."""

MEMORY_SHARE = 0.4
"""Share of a GPU's free memory that the clients stacked at once may take: recorded passes need it twice."""

COMPILE_PAYS = 2e14
"""Parameters times sample passes of a run, from which torch.compile saves more than it takes: some 10 s per shape."""

COMPILE_SHAPES = 6
"""Shapes of a stack's batches beyond which compiling never pays."""


@dataclass(frozen=True)
class Choice:
    """The way that was chosen, and why."""

    engine: str  # "stacked" or "loop"
    chunk: int  # clients stacked at once, at most
    threads: int  # of torch on the CPU
    why: str
    warning: str | None = None
    workers: int = 1  # clients that train side by side, each by one thread, where they do not all train at once


def choose_engine(requested: str, trainer: Trainer, clients: Clients, w: Rows, processes: int = 1) -> Choice:
    """Return how to train these clients.

    `auto` stacks if there is more than one client, and the device is a GPU or the model has at most STACKED_ON_CPU
    parameters and a client's step takes at most STACKED_WORK multiply-adds; else it loops. A module that vmap can't
    handle is looped in any case. A loop on a CPU is shared by workers (`side_workers.workers_for`). A CPU trains small
    models with one thread, unless a client's step is large: more than LAYER_WORK in a layer (a stack), or STACKED_WORK.

    `processes` share the clients; each has as many cores as torch has threads here.
    """
    checks.one_of("engine", requested, ENGINES)
    choice = _stacked_or_loop(requested, trainer, clients, w)
    if choice.engine == "stacked" or clients.x.device.type != "cpu" or choice.threads == 1:
        return choice
    work = [trainer.config.batching.samples(len(positions)) for positions in clients.train]
    workers = workers_for(work, processes * choice.threads, processes * choice.chunk) // processes
    if workers > 1 and _draws(trainer, clients, w):
        return replace(choice, why=f"{choice.why}; it draws from a global stream of random numbers: one at a time")
    return replace(choice, workers=max(1, workers))


def _stacked_or_loop(requested: str, trainer: Trainer, clients: Clients, w: Rows) -> Choice:
    device, num_params = clients.x.device, trainer.model.num_params
    chunk = max(1, LOOP_VALUES // num_params)
    small, cores = device.type == "cpu" and num_params <= SMALL, torch.get_num_threads()
    loop = partial(Choice, "loop", chunk, 1 if small else cores)
    if requested == "loop":
        return loop("asked for")
    if requested == "auto":
        if len(clients) == 1:
            return loop("there is one client")
        if device.type == "cpu" and num_params > STACKED_ON_CPU:
            return loop(f"{num_params} parameters on a CPU, more than {STACKED_ON_CPU}")
        if device.type == "cpu" and (work := step_work(trainer, clients)) > STACKED_WORK:
            why = f"{work} multiply-adds per step on a CPU, more than {STACKED_WORK}"
            return Choice("loop", chunk, cores, why)
    if trainer.model.side_by_side and not same_as_loop(trainer.model, clients.few()):
        trainer.model.only_vmap()
    fault = _fault(trainer, clients, w, "stacked")
    if fault is not None and trainer.model.side_by_side:  # known layers in an unknown place: vmap may take them
        trainer.model.only_vmap()
        fault = _fault(trainer, clients, w, "stacked")
    if fault is not None:
        if (plain := _fault(trainer, clients, w, "loop")) is not None:
            raise UserError(f"a training step of {type(trainer.model.module).__name__} fails: {plain}")
        name = type(trainer.model.module).__name__
        warning = f"{name} can't be trained for all clients at once ({fault}); clients train one at a time instead"
        return loop("vmap can't handle the model", warning)
    why = "asked for" if requested == "stacked" else f"{num_params} parameters on {device.type}"
    if device.type == "cuda":
        chunk = _chunk_for_memory(trainer, clients, w)
    elif device.type == "cpu":
        chunk = max(1, STACK_VALUES // max(num_params, _batch(trainer, clients) * clients.x[0].numel()))
    one_thread = small and step_work(trainer, clients) <= LAYER_WORK * _layers(trainer)
    return Choice("stacked", chunk, 1 if one_thread else cores, why)


def step_work(trainer: Trainer, clients: Clients) -> int:
    """Return the multiply-adds of one client's forward pass over one minibatch."""
    row, sample = trainer.model.row(), clients.train[0][:2]
    x, _ = clients.samples(sample)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        trainer.model(row.params[0], row.buffers[0], x, training=False)
    return int(counter.get_total_flops()) // 2 // len(sample) * _batch(trainer, clients)


def _batch(trainer: Trainer, clients: Clients) -> int:
    """Return how many samples the largest minibatch has."""
    return min(trainer.config.batching.batch_size, max(len(positions) for positions in clients.train))


def _layers(trainer: Trainer) -> int:
    """Return how many layers of a model multiply: those with a matrix."""
    return sum(values.ndim > 1 for values in trainer.model.module.parameters())


def compile_pays(trainer: Trainer, clients: Clients, rounds: int) -> bool:
    """Return whether torch.compile repays its own time in a run: on a GPU, with much to do in few shapes."""
    if clients.x.device.type != "cuda" or trainer.config.engine != "stacked" or not trainer.model.side_by_side:
        return False
    if trainer.config.privacy is not None:  # samples pass one by one, under vmap
        return False
    if trainer.model.pools_in_one(clients.x):  # what compiling would join, but for little, is joined already
        return False
    sizes = sorted(len(positions) for positions in clients.train)
    batching = trainer.config.batching
    passes = rounds * sum(batching.samples(size) for size in sizes)
    shapes = {(size, cut[1] - cut[0]) for size in sizes for cut in batching.cuts(size)}
    return passes * trainer.model.num_params >= COMPILE_PAYS and len(shapes) <= COMPILE_SHAPES


def _chunk_for_memory(trainer: Trainer, clients: Clients, w: Rows) -> int:
    """Return how many clients fit a GPU's memory, from what a step of two takes; too many are halved on the way."""
    two = torch.arange(min(2, len(clients)))
    probe = trainer.changed(batching=Batching(trainer.config.batching.batch_size, steps=1), engine="stacked")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    probe.local(clients.take(two), 1).run(w[two.to(w.params.device)], _gradient)
    each = max(1.0, (torch.cuda.max_memory_allocated() - before) / len(two))
    torch.cuda.empty_cache()
    return max(1, int(MEMORY_SHARE * torch.cuda.mem_get_info()[0] / each))


def _fault(trainer: Trainer, clients: Clients, w: Rows, way: str) -> str | None:
    """Return why one step of two clients fails in one of the two ways, or None if it does not."""
    probe, some, first = _two_steps(trainer, clients, w, engine=way)
    try:
        with warnings.catch_warnings():
            # torch warns where an operation has no batched form and is looped inside: slower than our own loop.
            warnings.filterwarnings("error", message=".*performance drop.*")
            before = streams(clients.x.device)
            ended = probe.local(some, 1).run(first, _gradient)
            x, _ = some.samples(torch.stack([positions[:1] for positions in some.train]))
            if way == "stacked":
                outputs(probe, ended, x, some.numbers)
                if streams(clients.x.device) != before:
                    return "it draws from a global stream of random numbers, once for all clients"
                probe.model(ended.params[0], ended.buffers[0], x[0], training=False)  # one alone, after all at once
    except Exception as error:  # whatever a user's module may do under vmap
        return _in_words(str(error).strip()) or type(error).__name__
    return None


def _in_words(error: str) -> str:
    """Return what torch says of a failed step, without its own inner workings.

    >>> _in_words("Batching rule not implemented for aten::gru.input; the fallback path doesn't work on out= ops.")
    "vmap has no batched form of one of the model's operations, gru.input"
    """
    if rule := re.search(r"batching rule (?:not implemented )?for (?:aten::)?([\w:.]*\w)", error, re.IGNORECASE):
        return f"vmap has no batched form of one of the model's operations, {rule[1]}"
    if "data-dependent control flow" in error:
        return "what it does depends on the values in a tensor, as with .item() or an if, which vmap does not allow"
    return re.split(r"(?<=[a-z)])\. |\n", error)[0][:240]


def _draws(trainer: Trainer, clients: Clients, w: Rows) -> bool:
    """Return whether steps of two clients side by side draw from a global stream of random numbers."""
    probe, some, first = _two_steps(trainer, clients, w, engine="loop", workers=2)
    with contextlib.suppress(Exception):  # a step that fails does so in the first round, where it is told
        probe.local(some, 1).run(first, _gradient)
    return probe.one_at_a_time


def _two_steps(trainer: Trainer, clients: Clients, w: Rows, **way: Any) -> tuple[Trainer, Clients, Rows]:
    """Return what it takes to let two clients take two steps: a trainer, the clients, and their rows."""
    # A model of its own, and two steps: what a pass leaves behind in a module must not be there when the run begins.
    model = FlatModel(trainer.model.fresh())
    if not trainer.model.side_by_side:
        model.only_vmap()
    batching = Batching(min(4, trainer.config.batching.batch_size), steps=2)
    if trainer.config.privacy is not None:  # so few samples that all of them are in every random minibatch
        batching, clients = Batching(4, steps=2), clients.training_on(tuple(mine[:4] for mine in clients.train))
    two = torch.arange(min(2, len(clients)))
    probe = Trainer(model, replace(trainer.config, batching=batching, **way), trainer.events)
    return probe, clients.take(two), w[two.to(w.params.device)]


def _gradient(w: Tensor, grad: object) -> Tensor:
    return grad(w)  # type: ignore[no-any-return, operator]
