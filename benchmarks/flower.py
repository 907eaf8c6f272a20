"""Our round of FedAvg against Flower's simulation engine: the same clients, model, steps and number of rounds.

    pip install "flwr[simulation]"
    python benchmarks/flower.py [--case CASE] [--rounds 5]

The work is that of benchmarks/same_work.py: one pass of plain SGD over every client's samples, no scores, no records.
Flower trains each client in a plain loop, in as many workers as there are cores, with a thread each. Starting up is not
counted, nor is a first round of each. A ratio over 1 means that ours is the shorter round: medians of the rounds, three
times in turn.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from same_work import CASES, Ours, Work
from side_by_side import median_and_range

from fedamp.training.torch_switches import keep_freed_memory

REPEATS = 3


def ours(work: Work, rounds: int) -> float:
    """Return the seconds of a round of ours."""
    player = Ours(work)
    player.round()
    moments = [time.perf_counter()]
    for _ in range(rounds):
        player.round()
        moments.append(time.perf_counter())
    return statistics.median(after - before for before, after in itertools.pairwise(moments))


def flowers(work: Work, path: Path, rounds: int) -> float:
    """Return the seconds of a round in Flower's simulation; the work is at this path too, for its workers."""
    from flower_client import OneClient
    from flwr.client import Client, ClientApp
    from flwr.common import Context, ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    moments: list[float] = []

    class Timed(FedAvg):
        def configure_fit(self, *args: Any, **kwargs: Any) -> Any:
            moments.append(time.perf_counter())
            return super().configure_fit(*args, **kwargs)

        def aggregate_fit(self, *args: Any, **kwargs: Any) -> Any:
            done = super().aggregate_fit(*args, **kwargs)
            moments.append(time.perf_counter())
            return done

    def client(context: Context) -> Client:
        return OneClient(path, int(context.node_config["partition-id"])).to_client()

    def server(context: Context) -> ServerAppComponents:
        start = ndarrays_to_parameters([p.detach().numpy() for p in work.module.parameters()])
        strategy = Timed(fraction_evaluate=0.0, initial_parameters=start)
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds + 1))

    run_simulation(
        ServerApp(server_fn=server),
        ClientApp(client_fn=client),
        num_supernodes=len(work.clients),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    spent = [end - begin for begin, end in zip(moments[::2], moments[1::2], strict=True)]
    return statistics.median(spent[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), action="append", help="only this one; may be given again")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    missing = [name for name in ("flwr", "ray") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"Flower's simulation: left out, {' and '.join(missing)} not installed (pip install 'flwr[simulation]')")
        return
    keep_freed_memory()
    for case in asked.case or CASES:
        work = CASES[case]()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "work.pt"
            torch.save(work, path)
            pairs = [(flowers(work, path, asked.rounds), ours(work, asked.rounds)) for _ in range(REPEATS)]
        found = median_and_range([theirs / mine for theirs, mine in pairs])
        print(f"Flower's simulation / fedamp, {case}, 20 clients: {found}", flush=True)


if __name__ == "__main__":
    main()
