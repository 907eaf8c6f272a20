"""The server's products of all models: their rate against one large float64 product, and memory beyond W and U.

    python benchmarks/server.py                small sizes
    python benchmarks/server.py --large        m = 100, d = 11 million and m = 1000, d = 1.7 million: 20 GB of memory
    python benchmarks/server.py --sketch 4096  the distances from sketches of so many numbers too

A rate of 1 is that of a product of two matrices of 2048 x 2048, timed in turn with the others. Distances and mixture
count 2 m^2 d operations each, whatever is done beside: rows are converted to float64, and the mixture back. Distances
from sketches count as much, so that their rate says how much less they do. `plain` is the same by products of float64
copies of all rows; if there is not enough memory for that, the rates are those of a quarter of the columns. Seconds are
those of a first call; rates are of later ones, for which there is memory to be used again, as in a run from its fourth
round on.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from fedamp.methods.attention import squared_distances
from fedamp.methods.attention.sketches import sketch
from fedamp.rows import mix
from fedamp.runs.memory.needs import free_memory
from fedamp.training.torch_switches import keep_freed_memory
from fedamp.used_memory import used_again

SMALL = [(20, 100_000), (60, 1_000_000), (300, 100_000), (1000, 100_000)]
LARGE = [(100, 11_000_000), (1000, 1_700_000)]
SIDE, REPEATS = 2048, 3


def plain_distances(w: Tensor) -> Tensor:
    """Return squared distances by one product of float64 copies."""
    seen = w.double() - w[0].double()
    gram = seen @ seen.T
    norms = gram.diagonal()
    return norms[:, None] + norms - 2 * gram


def plain_mix(xi: Tensor, w: Tensor) -> Tensor:
    """Return the mixture by one product of float64 copies."""
    return (xi @ w.double()).float()


def resident() -> int:
    """Return the bytes that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def seconds(function: Callable[[], Tensor]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def cost(function: Callable[[], Tensor], kept: int) -> tuple[float, int]:
    """Return a call's seconds, and the most bytes that it held beyond what was there before and what it returns."""
    before, spent = resident(), seconds(function)
    return spent, max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before - kept)


def measure(m: int, d: int, size: int) -> None:
    """Print a line for the distances, one for those of sketches if asked for, and one for the mixture."""
    w = torch.empty((m, d))
    for row in w:
        row.uniform_(-1, 1)
    xi = torch.softmax(torch.rand(m, m, dtype=torch.float64), 1)
    bytes_of_w = w.numel() * w.element_size()
    costs = [cost(lambda: squared_distances(w), 0)]
    if size:
        costs.append(cost(lambda: squared_distances(sketch(w, size)), 0))
    costs.append(cost(lambda: mix(xi, w), bytes_of_w))  # last: a process's peak never falls
    part, about = w, ""
    if (free_memory(w.device) or 0) < 6 * bytes_of_w:
        part, about = w[:, : d // 4].clone(), " of d/4"
    square = torch.rand(SIDE, SIDE, dtype=torch.float64)
    ways = {"distances": (lambda: squared_distances(part), lambda: plain_distances(part))}
    if size:
        ways["sketched"] = (lambda: squared_distances(sketch(part, size)), lambda: plain_distances(part))
    ways["mixture"] = (lambda: mix(xi, part), lambda: plain_mix(xi, part))
    work = m * m * part.shape[1] / SIDE**3
    for (name, pair), (spent, more) in zip(ways.items(), costs, strict=True):
        timed = [[seconds(each) for each in (lambda: square @ square, *pair)] for _ in range(REPEATS)]
        rates = [(work * large / ours, work * large / plain) for large, ours, plain in timed]
        ours, plain = (statistics.median(column) for column in zip(*rates, strict=True))
        shown = f"{ours:.2f} ({min(one for one, _ in rates):.2f} to {max(one for one, _ in rates):.2f}){about}"
        title = f"{name}, m = {m}, d = {d}"
        print(f"{title:36s} {shown:28s} {plain:6.2f} {spent:8.2f} {more / bytes_of_w:19.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--sketch", type=int, default=0, metavar="NUMBERS")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # m:d, in a process of its own: its memory counts
    asked = parser.parse_args()
    if asked.case:
        keep_freed_memory()  # as a run does
        m, d = asked.case.split(":")
        with used_again():
            measure(int(m), int(d), asked.sketch)
        return
    columns = (
        f"{'server':36s} {'rate, of a large product':28s} {'plain':>6s} {'seconds':>8s} {'extra memory, of W':>19s}"
    )
    print(columns, flush=True)
    for m, d in LARGE if asked.large else SMALL:
        command = [sys.executable, __file__, "--case", f"{m}:{d}", "--sketch", str(asked.sketch)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
