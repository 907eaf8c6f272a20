"""The server's products in blocks against plain ones that sum in float64 too: time, and memory beyond W and U.

    python benchmarks/server.py                small sizes
    python benchmarks/server.py --large        m = 100, d = 11 million and m = 1000, d = 1.7 million: 20 GB of memory

A ratio under 1 means that the blocks are faster. The plain way makes float64 copies of all rows; if there is not enough
memory for that, the ratio is measured on a quarter of the columns.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from side_by_side import median_and_range, ratios
from torch import Tensor

from fedamp.methods.attention import squared_distances
from fedamp.rows import mix
from fedamp.runs.memory.needs import free_memory

SMALL = [(20, 100_000), (60, 1_000_000), (300, 100_000)]
LARGE = [(100, 11_000_000), (1000, 1_700_000)]


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


def cost(function: Callable[[], Tensor], kept: int) -> tuple[float, int]:
    """Return a call's seconds, and the most bytes that it held beyond what was there before and what it returns."""
    before, began = resident(), time.perf_counter()
    function()
    seconds = time.perf_counter() - began
    return seconds, max(0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before - kept)


def measure(m: int, d: int) -> None:
    """Print a line for the distances and one for the mixture."""
    w = torch.empty((m, d))
    for row in w:
        row.uniform_(-1, 1)
    xi = torch.softmax(torch.rand(m, m, dtype=torch.float64), 1)
    size = w.numel() * w.element_size()
    costs = [cost(lambda: squared_distances(w), 0), cost(lambda: mix(xi, w), size)]
    part, about = w, ""
    if (free_memory(w.device) or 0) < 6 * size:  # plain ways need float64 copies: on a quarter of the columns then
        part, about = w[:, : d // 4].clone(), " of d/4"
    pairs = [
        {"blocks": lambda: squared_distances(part), "plain": lambda: plain_distances(part)},
        {"blocks": lambda: mix(xi, part), "plain": lambda: plain_mix(xi, part)},
    ]
    for name, ways, (spent, more) in zip(("distances", "mixture"), pairs, costs, strict=True):
        ratio = median_and_range(ratios(ways, 3)["blocks"]) + about
        print(f"{f'{name}, m = {m}, d = {d}':34s} {ratio:32s} {spent:8.2f} {more / size:19.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # m:d, in a process of its own: its memory counts
    asked = parser.parse_args()
    if asked.case:
        measure(*map(int, asked.case.split(":")))
        return
    print(f"{'server':34s} {'blocks / plain':32s} {'seconds':>8s} {'extra memory, of W':>19s}", flush=True)
    for m, d in LARGE if asked.large else SMALL:
        subprocess.run([sys.executable, __file__, "--case", f"{m}:{d}"], check=True)


if __name__ == "__main__":
    main()
