"""Where the time of a round goes, over real processes: local training, transport, the server's own work.

    python benchmarks/federation_round.py                    # 3 silos, a tiny model
    python benchmarks/federation_round.py --silos 8
    python benchmarks/federation_round.py --model cnn        # 3 silos x 1.7 M parameters
    python benchmarks/federation_round.py --model resnet18   # 3 silos x 11 M parameters

A server and its silos on this machine, over TLS and with keys, with one local step per round, so that the overhead
shows. Local training is that of the slowest silo; transport is the rest of the round: what silos do besides (reading
the data, scoring), the models' way there and back, and waiting for a free core. The first two rounds are left out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np

from fedamp.config import RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.data.silos.read import read_silos
from fedamp.data.silos.schema import make_schema
from fedamp.federation import demo, provision
from fedamp.federation.plan import Plan
from fedamp.federation.processes import ports
from fedamp.records.reading import read_lines

SHAPES = {"mlp": (8, 8), "cnn": (28, 28), "resnet18": (3, 32, 32)}
OUTPUTS = {"mlp": 10, "cnn": 62, "resnet18": 100}


def measure(model: str, silos: int, rounds: int, samples: int, method: str) -> list[dict[str, float]]:
    """Return where the time of each round but the first two goes, in seconds."""
    with tempfile.TemporaryDirectory(prefix="fedamp-bench-", ignore_cleanup_errors=True) as made:
        folder, stream = Path(made), np.random.default_rng(0)
        (folder / "data").mkdir()
        names = [f"silo-{i}" for i in range(silos)]
        for name in names:
            x = stream.integers(0, 256, (samples, *SHAPES[model]), dtype=np.uint8)
            np.savez(folder / "data" / f"{name}.npz", x=x, y=np.arange(samples) % OUTPUTS[model])
        schema = make_schema(read_silos(folder / "data"))
        values = {"data": "bench", "setting": "natural", "clients": silos, "task": schema.task, "steps": 1}
        values |= {"method": method, "model": model, "rounds": rounds, "batch_size": 50}
        federation = folder / "federation"
        plan = Plan("bench", RunConfig.of(values), schema)
        port = ports.free_port()
        provision.init(federation, names, plan, Rules(min_silos=silos), ["localhost"], port, None)
        data = [folder / "data" / f"{name}.npz" for name in names]
        demo.run_all(federation, data, 300.0 + 120.0 * rounds, print)
        lines = [line for line in read_lines(federation / "record" / "rounds.jsonl") if line["round"] > 2]
    splits = []
    for line in lines:
        if "present" not in line:
            continue
        training = max(seconds for seconds in line["train_seconds"] if seconds is not None)
        rest = line["seconds"] - training - line["server_seconds"]
        splits.append(
            {"round": line["seconds"], "training": training, "transport": rest, "server": line["server_seconds"]}
        )
    return splits


def main() -> None:
    """Measure, and print where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(SHAPES), default="mlp")
    parser.add_argument("--silos", type=int, default=3)
    parser.add_argument("--method", default="fedamp")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--samples", type=int, default=200)
    asked = parser.parse_args()
    splits = measure(asked.model, asked.silos, asked.rounds, asked.samples, asked.method)
    for part in ("round", "training", "transport", "server"):
        values = [split[part] for split in splits]
        print(f"{part:10} median {statistics.median(values):7.2f} s   from {min(values):.2f} to {max(values):.2f} s")
    half = len(splits) // 2
    first, last = (statistics.median(s["round"] for s in part) for part in (splits[:half], splits[half:]))
    print(f"median of the first half {first:.2f} s, of the second {last:.2f} s")


if __name__ == "__main__":
    main()
