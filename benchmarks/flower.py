"""All clients at once against Flower's simulation engine: the same clients, model, data and number of rounds.

    pip install "flwr[simulation]"
    python benchmarks/flower.py [--clients 20] [--rounds 3]

Both run FedAvg on the digits with the MLP, one pass in minibatches of 10 a round. Flower runs each client as a plain
loop with fused Adam, one client a core. Starting up is not counted: the time is that of the rounds alone.
"""

import argparse
import importlib.util
import time
from typing import Any

import torch
import torch.nn.functional as F

import fedamp
from fedamp import models
from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.models.zoo import mlp
from fedamp.runs.material import load_material


def ours(config: RunConfig) -> float:
    """Return the seconds of a round."""
    settings = {"data": "digits", "clients": config.clients, "method": "fedavg", "epochs": 1}
    result = fedamp.run(**settings, rounds=config.rounds)
    return result.seconds / config.rounds


def flowers(config: RunConfig, clients: Clients) -> float:
    """Return the seconds of a round in Flower's simulation."""
    from flwr.client import Client, ClientApp, NumPyClient
    from flwr.common import Context, ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    shape = tuple(clients.x.shape[1:])
    first = models.build(mlp, shape, 10, 0)
    moments: list[float] = []

    class OneClient(NumPyClient):
        def __init__(self, number: int) -> None:
            self.positions = clients.train[number]

        def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
            torch.set_num_threads(1)
            module = models.build(mlp, shape, 10, 0)
            with torch.no_grad():
                for own, given in zip(module.parameters(), parameters, strict=True):
                    own.copy_(torch.from_numpy(given))
            optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
            for batch in self.positions[torch.randperm(len(self.positions))].split(10):
                x, y = clients.samples(batch)
                optimizer.zero_grad()
                F.cross_entropy(module(x), y).backward()
                optimizer.step()
            return [p.detach().numpy() for p in module.parameters()], len(self.positions), {}

    class Timed(FedAvg):
        def configure_fit(self, *args: Any, **kwargs: Any) -> Any:
            moments.append(time.perf_counter())
            return super().configure_fit(*args, **kwargs)

        def aggregate_fit(self, *args: Any, **kwargs: Any) -> Any:
            done = super().aggregate_fit(*args, **kwargs)
            moments.append(time.perf_counter())
            return done

    def client(context: Context) -> Client:
        return OneClient(int(context.node_config["partition-id"])).to_client()

    def server(context: Context) -> ServerAppComponents:
        start = ndarrays_to_parameters([p.detach().numpy() for p in first.parameters()])
        strategy = Timed(fraction_evaluate=0.0, initial_parameters=start)
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=config.rounds + 1))

    run_simulation(ServerApp(server_fn=server), ClientApp(client_fn=client), num_supernodes=len(clients))
    spent = [end - begin for begin, end in zip(moments[::2], moments[1::2], strict=True)]
    return sum(spent[1:]) / config.rounds  # the first round is warm-up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    missing = [name for name in ("flwr", "ray") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"Flower's simulation: left out, {' and '.join(missing)} not installed (pip install 'flwr[simulation]')")
        return
    config = RunConfig(clients=asked.clients, rounds=asked.rounds)
    clients = load_material(config).clients
    ours(config)  # warm-up
    ratios = [flowers(config, clients) / ours(config) for _ in range(3)]
    ratios.sort()
    spread = f"{ratios[1]:.1f} ({ratios[0]:.1f} to {ratios[2]:.1f})"
    print(f"Flower's simulation / fedamp, a round of {asked.clients} clients: {spread}")


if __name__ == "__main__":
    main()
