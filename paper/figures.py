"""The figures of docs/reproduction.md, drawn from results/ (needs matplotlib)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments import RESULTS, SEEDS
from page import METHODS, NAMES, TITLES, read, runs

IMAGES = Path(__file__).parent.parent / "docs" / "images"


def draw_all() -> None:
    """Draw every figure that there are results for."""
    theorems()
    for data in TITLES:
        if all(runs(f"table3-{data}", method) for method in ("separate", "fedavg-ft", "fedamp", "heurfedamp")):
            distributions(data)
            weights(data)


def theorems() -> None:
    """Draw both theorems beside their bounds, and the way with diminishing steps."""
    told = json.loads((RESULTS / "theorems.json").read_text())
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    panels = (("convex", "gap", "Theorem 1", "min H − H*"), ("smooth", "gradient", "Theorem 2", "min |∇H|²"))
    for axis, (name, value, title, label) in zip(axes, panels, strict=False):
        lines = told[name]["lines"]
        rounds = [line["K"] for line in lines]
        axis.loglog(rounds, [max(line[value], 1e-16) for line in lines], "o-", label="seen")
        axis.loglog(rounds, [line[value + "_bound"] for line in lines], "--", color="0.4", label="bound")
        axis.set(title=title, xlabel="rounds K, alpha = λ/√K", ylabel=label)
        axis.legend()
    for name, value, _, label in panels:
        steps = told[name]["diminishing"]
        axes[2].loglog([s["k"] for s in steps], [max(s[value], 1e-16) for s in steps], label=label.removeprefix("min "))
    axes[2].set(title="diminishing steps, alpha = λ / 2k^0.6", xlabel="round k")
    axes[2].legend(["Theorem 1: H − H*", "Theorem 2: |∇H|²"])
    _save(figure, "theorems")


def distributions(data: str) -> None:
    """Draw every client's accuracy, its mean over the seeds, by method."""
    shown = [(method, name) for method, name in zip(METHODS, NAMES, strict=True) if runs(f"table3-{data}", method)]
    values = [np.mean([one["per_client"] for one in runs(f"table3-{data}", method)], axis=0) for method, _ in shown]
    figure, axis = plt.subplots(figsize=(9, 0.5 * len(shown) + 1.4), layout="constrained")
    axis.boxplot(values[::-1], orientation="horizontal", tick_labels=[name for _, name in shown][::-1], widths=0.6)
    axis.set(xlabel="test accuracy of a client, %", title=f"{TITLES[data]}, practical setting")
    axis.grid(axis="x", alpha=0.3)
    _save(figure, f"distributions-{data}")


def weights(data: str) -> None:
    """Draw who listens to whom in the last round, and how well the groups are found over the rounds."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for axis, (method, name) in zip(axes, (("fedamp", "FedAMP"), ("heurfedamp", "HeurFedAMP")), strict=False):
        told = read(f"table3-{data}", f"{method}-seed{SEEDS[0]}") or {}
        last = max(told["xi"], key=int)
        others = np.array(told["xi"][last])
        np.fill_diagonal(others, np.nan)
        picture = axis.imshow(others, cmap="viridis")
        axis.set(title=f"{name}, round {last}", xlabel="message of client", ylabel="cloud model of client")
        figure.colorbar(picture, ax=axis, label="weight ξ", shrink=0.8)
        _recovery(axes[2], told, name)
    axes[2].set(xlabel="round", ylabel="adjusted Rand index", title="groups found from ξ alone", ylim=(-0.05, 1.05))
    axes[2].legend()
    _save(figure, f"weights-{data}")


def _recovery(axis: Any, told: dict[str, Any], name: str) -> None:
    axis.plot(range(1, len(told["recovery"]) + 1), told["recovery"], label=name)


def _save(figure: Any, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.png", dpi=100)
    plt.close(figure)
