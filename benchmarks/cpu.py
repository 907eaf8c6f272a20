"""All clients at once against a plain loop, and the engine's two ways against each other, on a CPU.

    python benchmarks/cpu.py

A ratio over 1 means that all clients at once (`stacked`) is faster. `plain loop` is what a careful user would write
(plain_loop.py), `loop` our own way of training one client after another. `auto` is what the rule chooses, and `lost`
what the other way would have gained.
"""

import statistics

import torch
from plain_loop import PlainLoop
from side_by_side import median_and_range, ratios

from fedamp import models
from fedamp.data.clients import Clients
from fedamp.methods.base import proximal
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.stacked_or_loop import choose_engine
from fedamp.training.torch_switches import keep_freed_memory, use_threads
from fedamp.training.trainer import Trainer

# model, shape of a sample, clients, batch, steps
CASES = [
    ("mlp", (8, 8), 60, 10, 15),
    ("cnn-small", (8, 8), 60, 10, 15),
    ("logistic", (8, 8), 60, 10, 15),
    ("mlp", (8, 8), 10, 10, 15),
    ("cnn-small", (8, 8), 10, 10, 15),
    ("cnn-small", (8, 8), 20, 100, 3),
    ("mlp", (28, 28), 50, 10, 5),
    ("mlp", (28, 28), 20, 100, 5),
    ("logistic", (28, 28), 20, 100, 5),
    ("cnn-small", (28, 28), 20, 10, 2),
    ("cnn-small", (28, 28), 20, 100, 1),
    ("cnn", (28, 28), 10, 10, 2),
    ("cnn", (28, 28), 10, 100, 1),
    ("resnet18", (3, 8, 8), 4, 10, 1),
]
STRENGTH = 1e-4
LR = 1e-3


def compare(model: str, shape: tuple[int, ...], n: int, batch: int, steps: int) -> None:
    """Print the ratios of one case."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(n * 100, *shape, generator=g), torch.randint(10, (n * 100,), generator=g)
    clients = Clients(x, y, torch.arange(n * 100).split(100), tuple(range(n)))
    module = models.build(models.MODELS[model], shape, 10, 0)
    flat = FlatModel(module)
    first = flat.row().repeat(n)
    w = Rows(first.params.clone(), first.buffers.clone())
    trainer = Trainer(flat, TrainingConfig(Optimizer("adam", LR), Batching(batch, steps=steps)))
    choice = choose_engine("auto", trainer, clients, w)
    strength = torch.full((n, 1), STRENGTH)

    def ours(engine: str) -> None:
        local = trainer.changed(engine=engine).local(clients, 1)
        local.run(w, proximal, anchor=w.params, strength=strength)

    plain = PlainLoop(module, clients, LR)
    batches = [trainer.local(clients, 1).batches(i) for i in range(n)]
    start = [list(flat.unflatten(row, first.buffers[0])[0].values()) for row in w.params]
    ways = {"plain": lambda: plain.run(start, batches, STRENGTH), "loop": lambda: ours("loop")}
    with use_threads(choice.threads):
        found = ratios({**ways, "stacked": lambda: ours("stacked")}, repeats=5)
    gain = statistics.median(found["loop"])  # of stacked over loop
    lost = max(0.0, (1 / gain if choice.engine == "stacked" else gain) - 1)
    where = f"{model} {'x'.join(map(str, shape))}, {n} clients, batch {batch}"
    plain_loop, loop = (median_and_range(found[way]) for way in ("plain", "loop"))
    print(f"{where:42s} {plain_loop:24s} {loop:24s} {choice.engine:8s} {lost:5.0%}", flush=True)


def main() -> None:
    keep_freed_memory()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads at the most; median (lowest to highest) of 5")
    print(f"{'local training':42s} {'plain loop / stacked':24s} {'loop / stacked':24s} {'auto':8s}  lost")
    for case in CASES:
        compare(*case)


if __name__ == "__main__":
    main()
