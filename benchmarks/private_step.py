"""What it costs to protect each sample: a private step against a plain one, in time and memory.

    python benchmarks/private_step.py [--device cuda] [--repeats 5]

Ratios over 1 are what privacy costs. Both take the same number of steps on minibatches that are as long on average; the
two ways of training are measured one at a time (`loop`) and all clients at once (`stacked`). Memory is what a round
grows by at its peak, beyond rows and samples: on a CPU of the process, on a GPU of the tensors.
"""

import argparse
import time
from collections.abc import Callable

import torch
from side_by_side import median_and_range, ratios

from fedamp import models
from fedamp.data.clients import Clients
from fedamp.methods.base import descent
from fedamp.models.flat_model import FlatModel
from fedamp.privacy.promise import Privacy
from fedamp.runs.memory import process_memory
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.precision import resolve
from fedamp.training.torch_switches import give_back_freed_memory, keep_freed_memory, use_threads
from fedamp.training.trainer import Trainer

SAMPLES = 500
MIB = 1 << 20
# model, shape of a sample, clients, batch, steps
CPU = [("mlp", (8, 8), 20, 100, 10), ("cnn-small", (8, 8), 20, 50, 2), ("cnn", (28, 28), 2, 20, 1)]
GPU = [("mlp", (8, 8), 20, 100, 5), ("cnn-small", (28, 28), 20, 100, 5), ("cnn", (28, 28), 20, 100, 2)]


def compare(model: str, shape: tuple[int, ...], n: int, batch: int, steps: int, device: str, repeats: int) -> None:
    """Print a line for each of the two ways."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(n * SAMPLES, *shape, generator=g), torch.randint(10, (n * SAMPLES,), generator=g)
    clients = Clients(x, y, torch.arange(n * SAMPLES).split(SAMPLES), tuple(range(n))).to(torch.device(device))
    flat = FlatModel(models.build(models.MODELS[model], shape, 10, 0).to(device))
    w = flat.row().repeat(n)
    for engine in ("loop", "stacked"):
        plain = TrainingConfig(
            Optimizer("adam", 1e-3),
            Batching(batch, steps=steps),
            engine=engine,
            precision=resolve("auto", torch.device(device)),
        )
        protected = Privacy(clip=1.0, noise=dict.fromkeys(range(n), 1.0))
        ways: dict[str, Callable[[], None]] = {}
        for name, privacy in (("private", protected), ("plain", None)):
            trainer = Trainer(flat, plain).changed(privacy=privacy)
            ways[name] = lambda trainer=trainer: _round(trainer, clients, w, device)
        found = median_and_range(ratios(ways, repeats)["private"])
        began = time.perf_counter()
        ways["private"]()
        took = (time.perf_counter() - began) / steps * 1e3
        grown = {name: _grown(way, device) / MIB for name, way in ways.items()}
        where = f"{model} {'x'.join(map(str, shape))}, {n} clients, batch {batch}"
        memory = "  ".join(f"{grown[name]:8.0f} MiB" for name in ways)
        print(f"{where:40s} {engine:8s} {found:26s} {took:9.1f} ms  {memory}", flush=True)


def _round(trainer: Trainer, clients: Clients, w: object, device: str) -> None:
    trainer.local(clients, 1).run(w, descent)
    if device == "cuda":
        torch.cuda.synchronize()


def _grown(way: Callable[[], None], device: str) -> float:
    """Return the most bytes that a round holds beyond what was held before it; nan if the system does not say."""
    if device == "cuda":
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        way()
        return torch.cuda.max_memory_allocated() - before
    give_back_freed_memory()
    held = process_memory.resident()
    if held is None or not process_memory.forget_peak():
        return float("nan")
    way()
    return (process_memory.peak() or held) - held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    keep_freed_memory()
    title = (
        f"{'':40s} {'way':8s} {'time, private / plain':26s} {'a step of all':>12s}  {'private':>12s}  {'plain':>12s}"
    )
    print(title)
    with use_threads(1 if asked.device == "cpu" else torch.get_num_threads()):
        for case in CPU if asked.device == "cpu" else GPU:
            compare(*case, asked.device, asked.repeats)


if __name__ == "__main__":
    main()
