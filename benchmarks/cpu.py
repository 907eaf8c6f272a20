"""What `auto` chooses on a CPU against a plain loop, and the engine's two ways against each other.

    python benchmarks/cpu.py [--cases 0 1 2]

A ratio over 1 means that ours is faster. `plain loop` is what a careful user would write (plain_loop.py), with torch's
own number of threads. `auto` is what the rule chooses, as users get it: all clients at once (`stacked`), or a loop that
workers share, each with one thread. `lost` is what the other way would have gained.
"""

import argparse
import statistics

import torch
from plain_loop import PlainLoop
from side_by_side import median_and_range, ratios
from torch import nn

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
from fedamp.used_memory import used_again


def cnn_582k() -> nn.Module:
    """The CNN of 582,026 parameters that other simulators of federated learning are measured with."""
    first = [nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))


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
    ("cnn 582k", (28, 28), 20, 20, 10),
]
STRENGTH = 1e-4
LR = 1e-3


def compare(model: str, shape: tuple[int, ...], n: int, batch: int, steps: int) -> None:
    """Print the ratios of one case."""
    g = torch.Generator().manual_seed(0)
    size = max(100, batch * steps)
    x, y = torch.rand(n * size, *shape, generator=g), torch.randint(10, (n * size,), generator=g)
    clients = Clients(x, y, torch.arange(n * size).split(size), tuple(range(n)))
    module = cnn_582k() if model == "cnn 582k" else models.build(models.MODELS[model], shape, 10, 0)
    flat = FlatModel(module)
    first = flat.row().repeat(n)
    w = Rows(first.params.clone(), first.buffers.clone())
    trainer = Trainer(flat, TrainingConfig(Optimizer("adam", LR), Batching(batch, steps=steps)))
    choice = choose_engine("auto", trainer, clients, w)
    strength = torch.full((n, 1), STRENGTH)

    trainers = {engine: trainer.changed(engine=engine, workers=choice.workers) for engine in ("loop", "stacked")}

    def ours(engine: str) -> None:
        with use_threads(choice.threads):
            trainers[engine].local(clients, 1).run(w, proximal, anchor=w.params, strength=strength)

    plain = PlainLoop(module, clients, LR)
    batches = [trainer.local(clients, 1).batches(i) for i in range(n)]
    start = [list(flat.unflatten(row, first.buffers[0])[0].values()) for row in w.params]
    other = "loop" if choice.engine == "stacked" else "stacked"
    ways = {"plain": lambda: plain.run(start, batches, STRENGTH), other: lambda: ours(other)}
    found = ratios({**ways, choice.engine: lambda: ours(choice.engine)}, repeats=5)
    lost = max(0.0, 1 / statistics.median(found[other]) - 1)
    where = f"{model} {'x'.join(map(str, shape))}, {n} clients, batch {batch}"
    plain_loop, others = (median_and_range(found[way]) for way in ("plain", other))
    way = choice.engine if choice.workers == 1 else f"{choice.engine}, {choice.workers} workers"
    print(f"{where:42s} {plain_loop:24s} {others:24s} {way:16s} {lost:5.0%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs="*", default=range(len(CASES)), help="by position, from 0")
    keep_freed_memory()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads at the most; median (lowest to highest) of 5")
    print(f"{'local training':42s} {'plain loop / auto':24s} {'the other way / auto':24s} {'auto':16s}  lost")
    for case in parser.parse_args().cases:
        with used_again():
            compare(*CASES[case])


if __name__ == "__main__":
    main()
