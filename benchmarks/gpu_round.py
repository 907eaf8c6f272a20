"""Samples a second of local training on a GPU, and where the time of a round goes.

    python benchmarks/gpu_round.py --compile       the CNN on clients like EMNIST's, ResNet18; also compiled
    python benchmarks/gpu_round.py --profile       and the kernels that took the most time

Pictures are random, since only time is measured. The figure is the median of three rounds, after two rounds of warm-up.
"""

import argparse
import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile

from fedamp import models
from fedamp.data.clients import Clients
from fedamp.methods.base import proximal
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.stacked_or_loop import choose_engine
from fedamp.training.trainer import Trainer

EMNIST_PRACTICAL = [1000] * 10 + [700] * 26 + [400] * 26
CASES = {
    "cnn, 62 clients": ("cnn", (28, 28), 62, EMNIST_PRACTICAL, 2),
    "resnet18, 20 clients": ("resnet18", (3, 32, 32), 100, [1000] * 20, 1),
}


class Case:
    """A federation of random pictures whose local training can be timed."""

    def __init__(self, name: str, precision: str, compiled: bool) -> None:
        model, shape, classes, sizes, epochs = CASES[name]
        device, total = torch.device("cuda"), sum(sizes)
        g = torch.Generator().manual_seed(0)
        pictures = (torch.rand(total, *shape, generator=g) * 255).to(torch.uint8)
        labels = torch.randint(classes, (total,), generator=g)
        held = torch.arange(total).split(sizes)
        scaling = {"shift": torch.tensor(33.0), "scale": torch.tensor(78.0)}
        self.clients = Clients(pictures, labels, held, tuple(range(len(sizes))), **scaling).to(device)
        flat = FlatModel(models.build(models.MODELS[model], shape, classes, 0).to(device))
        first = flat.row().repeat(len(sizes))
        self.w = Rows(first.params.clone(), first.buffers.clone())
        config = TrainingConfig(Optimizer("adam", 1e-3), Batching(100, epochs=epochs), precision=precision)
        trainer = Trainer(flat, config)
        choice = choose_engine("stacked", trainer, self.clients, self.w)
        flat.compile(compiled)
        self.trainer = trainer.changed(engine="stacked", chunk=choice.chunk)
        self.samples = epochs * total
        self.strength = torch.full((len(sizes), 1), 1e-4, device=device)

    def round(self) -> None:
        local = self.trainer.local(self.clients, 1)
        local.run(self.w, proximal, anchor=self.w.params, strength=self.strength)
        torch.cuda.synchronize()

    def seconds(self) -> float:
        for _ in range(2):
            self.round()
        times = []
        for _ in range(3):
            began = time.perf_counter()
            self.round()
            times.append(time.perf_counter() - began)
        return statistics.median(times)


def kernels(case: Case, most: int = 16) -> None:
    """Print the kernels of one round that took the most time. Kernels overlap, so that the sum exceeds the round."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        case.round()
    spent = [(e.self_device_time_total / 1e3, e.count, e.key) for e in seen.key_averages() if e.self_device_time_total]
    total = sum(ms for ms, _, _ in spent)
    for ms, count, name in sorted(spent, reverse=True)[:most]:
        print(f"    {ms:7.1f} ms {ms / total:6.1%} {count:6d} x {name[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile")
    asked = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'case':24s} {'precision':9s} {'compiled':8s} {'s/round':>8s} {'k samples/s':>12s} {'peak GiB':>9s}")
    for name in CASES:
        for precision in ("fp32", "tf32", "bf16") if name.startswith("cnn") else ("tf32", "bf16"):
            for compiled in (False, True) if asked.compile and precision != "fp32" else (False,):
                if asked.only not in f"{name} {precision}":
                    continue
                torch._dynamo.reset()
                torch.cuda.reset_peak_memory_stats()
                case = Case(name, precision, compiled)
                seconds = case.seconds()
                peak = torch.cuda.max_memory_allocated() / 2**30
                rate = case.samples / seconds / 1e3
                print(f"{name:24s} {precision:9s} {compiled!s:8s} {seconds:8.3f} {rate:12.0f} {peak:9.1f}", flush=True)
                if asked.profile and precision != "fp32":
                    kernels(case)
                for event in case.trainer.take_events():
                    print(f"    {event}")


if __name__ == "__main__":
    main()
