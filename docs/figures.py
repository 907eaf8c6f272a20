"""Draw the README's picture: `python docs/figures.py` (needs matplotlib).

It shows who listens to whom in the demo's setting at three rounds, and each client's accuracy against training alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import fedamp
from fedamp.runs.result import Result

PICTURE = Path(__file__).parent / "images" / "demo.png"


def main() -> None:
    """Run HeurFedAMP and training alone in the demo's setting, and draw both."""
    result, alone = fedamp.run(method="heurfedamp"), fedamp.run(method="separate")
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained", width_ratios=[1, 1, 1, 1.25])
    picture = draw_weights(axes[:3], result, (2, 5, 30))
    figure.colorbar(picture, ax=axes[2], label="weight ξ", shrink=0.8)
    draw_accuracies(axes[3], result, alone)
    figure.savefig(PICTURE, dpi=110)


def draw_weights(axes: Any, result: Result, rounds: tuple[int, ...]) -> Any:
    """Draw the weights between clients at some rounds; return the last picture, for a colour bar."""
    assert result.xi is not None
    for axis, k in zip(axes, rounds, strict=True):
        others = result.xi[k - 1].clone().fill_diagonal_(float("nan"))
        picture = axis.imshow(others, cmap="viridis", vmin=0, vmax=0.15)
        axis.set(title=f"round {k}", xlabel="message of client", xticks=range(0, 20, 4), yticks=range(0, 20, 4))
    axes[0].set_ylabel("cloud model of client")
    return picture


def draw_accuracies(axis: Any, result: Result, alone: Result) -> None:
    """Draw each client's accuracy against that of training alone, coloured by group."""
    axis.plot([80, 100], [80, 100], color="0.7", linewidth=1)
    points = alone.summary.per_client, result.summary.per_client
    axis.scatter(*points, c=result.facts.groups, cmap="tab10", s=40, edgecolors="white")
    axis.set(title="accuracy of the 20 clients", xlabel="training alone, %", ylabel="HeurFedAMP, %")
    axis.set(xlim=(80, 100), ylim=(80, 100), aspect="equal")


if __name__ == "__main__":
    main()
