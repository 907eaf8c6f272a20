"""More clients than memory: seconds and memory of a round, with rows on the device, on the host or on disk.

    python benchmarks/many_clients.py --case resnet18              # 500 clients of 11.2 M parameters
    python benchmarks/many_clients.py --case cnn                   # 2000 clients of 1.7 M
    python benchmarks/many_clients.py --case resnet18 --compare    # a smaller case, --rows host against device
    python benchmarks/many_clients.py --case mlp --compare         # on a CPU, in a minute

Random pictures, a few steps for each client in a round, FedAMP unless --method says otherwise. A round is all of it:
what the server computes, the clients' training, and the scores of both models of each client. The first round is left
out of the median: it prepares kernels. With --compare the places take turns in one process, on the same data; the ratio
of their medians is what counts where others use the machine too. Memory is the most that torch held on the GPU, and the
most that the process held on the host, of which the part that is a file (--rows disk) may be taken back at any time.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.runs.loop import play
from fedamp.runs.memory import needs
from fedamp.runs.memory.process_memory import forget_peak, peak
from fedamp.runs.setup import assemble

GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    """How many clients, with which model, and how many of them to compare with rows on the device."""

    model: str
    shape: tuple[int, ...]
    clients: int
    compared: int


CASES = {
    "resnet18": Case("resnet18", (3, 32, 32), 500, 100),
    "cnn": Case("cnn", (28, 28), 2000, 500),
    "mlp": Case("mlp", (28, 28), 200, 100),
}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, default="resnet18")
    parser.add_argument("--compare", action="store_true", help="the smaller case, with rows in both places")
    parser.add_argument("--with", dest="places", default="device,host", help="which places take turns")
    parser.add_argument("--clients", type=int, help="instead of the case's own number")
    parser.add_argument("--method", default="fedamp")
    parser.add_argument("--rows", default="auto", help="auto, device, host or disk")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=2, help="of each place, with --compare")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--samples", type=int, default=100, help="of each client; a fifth as many to test with")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    asked = parser.parse_args()
    case = CASES[asked.case]
    m = asked.clients or (case.compared if asked.compare else case.clients)
    config = RunConfig(
        data="given",
        setting="given",
        clients=m,
        model=case.model,
        method=asked.method,
        rounds=asked.rounds,
        steps=asked.steps,
        batch_size=asked.batch_size,
        device=asked.device,
        precision=asked.precision,
        rows=asked.rows,
    )
    clients = pictures(m, asked.samples, case.shape)
    print(f"{m} clients, {case.model}, {asked.method}, {asked.steps} steps of {asked.batch_size}", flush=True)
    if not asked.compare:
        told("measured", measure(config, clients))
        return
    places = asked.places.split(",")
    seconds: dict[str, list[float]] = {place: [] for place in places}
    for turn in range(asked.turns):
        for place in places:
            found = measure(replace(config, rows=place), clients)
            told(f"turn {turn + 1}", found)
            seconds[place] += found["seconds"][1:]
    first, *others = (statistics.median(seconds[place]) for place in places)
    for place, median in zip(places[1:], others, strict=True):
        print(f"a round with rows on {place} takes {median / first:.2f} times as long as on {places[0]}", flush=True)


def pictures(num_clients: int, samples: int, shape: tuple[int, ...]) -> Clients:
    """Return clients with random pictures of ten classes, and a fifth as many to test with."""
    stream, tested = torch.Generator().manual_seed(0), max(1, samples // 5)
    each = samples + tested
    x = torch.randint(256, (num_clients * each, *shape), generator=stream, dtype=torch.uint8)
    y = torch.randint(10, (num_clients * each,), generator=stream)
    held = torch.arange(num_clients * each).view(num_clients, each)
    return Clients(
        x,
        y,
        tuple(held[:, :samples]),
        tuple(range(num_clients)),
        test=tuple(held[:, samples:]),
        shift=torch.tensor(128.0),
        scale=torch.tensor(74.0),
    )


def measure(config: RunConfig, clients: Clients) -> dict[str, Any]:
    """Play a run; return where its rows were and why, the seconds of its rounds, and the most memory of both kinds."""
    forget_peak()
    on_gpu = torch.cuda.is_available() and config.device != "cpu"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    setup = assemble(config, clients)
    said = needs.needs(config, setup)
    seconds: list[float] = []

    def observe(line: Mapping[str, Any]) -> None:
        if "present" in line:  # a round that was played
            seconds.append(line["seconds"])
            print(f"  round {line['round']}: {line['seconds']:.2f} s", flush=True)

    play(config, setup, observer=observe)
    return {
        "rows": setup.facts.rows_in,
        "why": setup.facts.rows_why,
        "chunk": min(setup.trainer.chunks.size, len(clients)),
        "seconds": seconds,
        "gpu": torch.cuda.max_memory_allocated() if on_gpu else None,
        "host": peak(),
        "said": said,
    }


def told(when: str, found: Mapping[str, Any]) -> None:
    """Print what was measured."""
    gpu = "" if found["gpu"] is None else f", GPU {found['gpu'] / GIB:.2f} GiB (said {found['said'].total / GIB:.2f})"
    apart = f" (said {found['said'].apart / GIB:.2f} of rows)" if found["said"].apart else ""
    rest = found["seconds"][1:] or found["seconds"]
    print(
        f"{when}: rows on {found['rows']} ({found['why']}), {found['chunk']} clients at once: "
        f"{statistics.median(rest):.2f} s a round, first {found['seconds'][0]:.2f}{gpu}, "
        f"host {(found['host'] or 0) / GIB:.2f} GiB{apart}",
        flush=True,
    )


if __name__ == "__main__":
    main()
