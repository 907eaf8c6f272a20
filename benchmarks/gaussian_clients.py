"""What it costs not to know how far clients differ: AutoAMP's program on Gaussian clients, where the truth is known.

    python benchmarks/gaussian_clients.py                        # prints the tables
    python benchmarks/gaussian_clients.py --into docs/autoamp.md # writes them between the page's markers

Client i has w_i = theta_i + noise_i in d dimensions, and two half models with twice the variance. M and v are estimated
from the halves; the error of the weights that follow is compared with that of weights from the true M and v (at bias
weight 1, so that the expected squared error of the parameters is least) and with each client's own model. Fixed seeds.
A cell has the excess over known moments, and in brackets the worst client's error as a multiple of its own model's.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedamp.methods.attention.bias_variance import expected_error, least_error_weights, signal_and_noise

COUNTS = (2, 3, 5, 10, 30, 100)
DIMENSIONS = (100, 1000)
KINDS = {"nobody differs": 0.0, "groups": 10.0, "groups close to the noise": 1.0, "all different": 10.0}
"""Squared distance of a client, or of a group, from the mean, in units of the clients' mean noise."""
SIZES = {"200 samples each": (200, 200), "20 to 2000 samples": (20, 2000)}
PLACE = re.compile(r"(<!-- gaussian clients[^>]* -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Outcome:
    """Means over draws."""

    excess: float  # share by which the mean client's error exceeds that with known moments
    worst: float  # the worst client's error, as a multiple of that of its own model


def clients(m: int, d: int, kind: str, samples: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return theta `(m, d)`, v `(m,)` of mean 1, and two half models."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(m, d, generator=g, dtype=torch.float64) * (KINDS[kind] / d) ** 0.5
    if kind.startswith("groups"):
        centres = centres[torch.arange(m) % max(2, min(5, m // 2))]
    noise = 1 / samples / (1 / samples).mean()

    def half() -> Tensor:
        return centres + torch.randn(m, d, generator=g, dtype=torch.float64) * (2 * noise / d).sqrt()[:, None]

    return centres, noise, half(), half()


def outcome(m: int, d: int, kind: str, sizes: str) -> Outcome:
    """Return what estimating costs, over as many draws as time allows."""
    low, high = SIZES[sizes]
    samples = low * (high / low) ** torch.linspace(0, 1, m, dtype=torch.float64)
    excess, worst = [], []
    for seed in range(max(2, 60 // m)):
        theta, noise, a, b = clients(m, d, kind, samples, seed)
        centred = theta - theta.mean(0)
        truth = centred @ centred.T
        least = expected_error(least_error_weights(truth, noise), truth, noise)
        signal, level, *_ = signal_and_noise(a, b, samples)
        found = expected_error(least_error_weights(signal, level), truth, noise)
        excess.append(found / least)
        worst.append((found / noise).max())
    return Outcome(float(torch.stack(excess).mean()) - 1, float(torch.stack(worst).mean()))


def table(d: int) -> str:
    """Return a line for each kind and sizes, a column for each number of clients."""
    lines = [f"| {d} dimensions; clients: | " + " | ".join(map(str, COUNTS)) + " |", "|---|" + "---:|" * len(COUNTS)]
    for kind in KINDS:
        for sizes in SIZES:
            found = [outcome(m, d, kind, sizes) for m in COUNTS]
            cells = " | ".join(f"{100 * max(one.excess, 0):.0f} % ({one.worst:.2f})" for one in found)
            lines.append(f"| {kind}, {sizes} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, help="a page with the markers to write between")
    asked = parser.parse_args()
    text = "\n\n".join(map(table, DIMENSIONS))
    if asked.into is None:
        print(text)
        return
    page, number = PLACE.subn(lambda at: f"{at[1]}\n{text}\n\n{at[2]}", asked.into.read_text(encoding="utf-8"))
    if not number:
        parser.error(f"{asked.into} has no '<!-- gaussian clients -->' and '<!-- end -->' to write between")
    asked.into.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
