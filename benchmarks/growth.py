"""Time and memory of one FedAMP round against the number of clients m and of parameters d.

    python benchmarks/growth.py --device cpu --json growth-cpu.json
    python benchmarks/growth.py --device cuda --json growth-cuda.json

Every client has 100 random pictures and takes one pass over them in minibatches of 20. The server's part (distances,
weights, mixture) and the clients' part (local training) are timed separately, after a warm-up round; the best
of three counts. Memory is the most that torch held on a GPU, or that the process held on a CPU; there it only ever
rises, so each case runs in its own process.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

from fedamp import models
from fedamp.data.clients import Clients
from fedamp.methods import make_method
from fedamp.models.flat_model import FlatModel
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.precision import resolve
from fedamp.training.stacked_or_loop import choose_engine
from fedamp.training.torch_switches import keep_freed_memory, use_threads
from fedamp.training.trainer import Trainer

CASES = {
    "cpu": {"mlp": (10, 30, 100, 300, 1000), "cnn-small": (10, 30, 100)},
    "cuda": {"mlp": (10, 100, 1000), "cnn": (10, 30, 100, 300, 1000), "resnet18": (10, 30, 100)},
}
SHAPES = {"resnet18": (3, 32, 32)}
SAMPLES = 100


def measure(device_name: str, model: str, m: int) -> dict[str, float | int | str]:
    """Return seconds and bytes of one round."""
    device, shape = torch.device(device_name), SHAPES.get(model, (28, 28))
    g = torch.Generator().manual_seed(0)
    x = (torch.rand(SAMPLES * m, *shape, generator=g) * 255).to(torch.uint8)
    y = torch.randint(10, (SAMPLES * m,), generator=g)
    held = torch.arange(SAMPLES * m).split(SAMPLES)
    clients = Clients(x, y, held, tuple(range(m)), shift=torch.tensor(33.0), scale=torch.tensor(78.0)).to(device)
    flat = FlatModel(models.build(models.MODELS[model], shape, 10, 0).to(device))
    w = flat.row().repeat(m)
    config = TrainingConfig(Optimizer(), Batching(20, epochs=1), precision=resolve("auto", device))
    trainer = Trainer(flat, config)
    choice = choose_engine("auto", trainer, clients, w)
    trainer = trainer.changed(engine=choice.engine, chunk=choice.chunk, workers=choice.workers)
    method = make_method("fedamp")
    server, state, present = method.server_init(w), method.client_init(w), torch.ones(m, dtype=torch.bool)
    spent: dict[str, list[float]] = {"server": [], "clients": []}

    def timed(part: str, began: float) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        spent[part].append(time.perf_counter() - began)
        return time.perf_counter()

    with use_threads(choice.threads):
        for k in (1, 2, 3, 4):
            began = time.perf_counter()
            server, message = method.server_send(server, k)
            began = timed("server", began)
            state, reply = method.client_update(state, message, trainer.local(clients, k))
            timed("clients", began)
            server = method.server_receive(server, reply, present)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    facts = {"device": device_name, "model": model, "m": m, "d": flat.num_params, "engine": choice.engine}
    return {**facts, "server_s": min(spent["server"][1:]), "clients_s": min(spent["clients"][1:]), "peak_bytes": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # model:m, of a process of its own
    asked = parser.parse_args()
    if asked.case:
        keep_freed_memory()
        model, m = asked.case.split(":")
        print(json.dumps(measure(asked.device, model, int(m))))
        return
    rows = []
    print(f"{'model':10s} {'d':>10s} {'m':>5s} {'way':8s} {'server s':>9s} {'clients s':>10s} {'peak GiB':>9s}")
    for model, counts in CASES[asked.device].items():
        for m in counts:
            if asked.device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                row = measure(asked.device, model, m)
            else:
                command = [sys.executable, __file__, "--device", asked.device, "--case", f"{model}:{m}"]
                row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows.append(row)
            if asked.json:
                asked.json.write_text(json.dumps(rows, indent=1) + "\n")
            times = f"{row['server_s']:9.3f} {row['clients_s']:10.3f} {row['peak_bytes'] / 2**30:9.2f}"
            print(f"{model:10s} {row['d']:10d} {m:5d} {row['engine']:8s} {times}", flush=True)


if __name__ == "__main__":
    main()
