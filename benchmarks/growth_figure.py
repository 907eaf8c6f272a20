"""Draw what growth.py measured: seconds of a round against the number of clients, a line for each model and device.

python benchmarks/growth_figure.py benchmarks/results/growth-*.json --out docs/images/growth.png
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    rows = [row for file in asked.files for row in json.loads(file.read_text())]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for device, style in (("cpu", "o--"), ("cuda", "o-")):
        for model in dict.fromkeys(row["model"] for row in rows if row["device"] == device):
            mine = [row for row in rows if (row["device"], row["model"]) == (device, model)]
            m, label = [row["m"] for row in mine], f"{model}, {'GPU' if device == 'cuda' else 'CPU'}"
            left.plot(m, [row["server_s"] + row["clients_s"] for row in mine], style, label=label, markersize=4)
            right.plot(m, [row["peak_bytes"] / 2**30 for row in mine], style, label=label, markersize=4)
    for axes, what in ((left, "seconds a round"), (right, "peak memory, GiB")):
        axes.set(xscale="log", yscale="log", xlabel="clients", ylabel=what)
        axes.grid(alpha=0.3)
    left.legend(fontsize=7, frameon=False)
    figure.savefig(asked.out, dpi=130)


if __name__ == "__main__":
    main()
