"""The figures of docs/reproduction.md, drawn from results/ (needs matplotlib)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm

from paper import results
from paper.automatic import counted
from paper.outcomes import OURS, ROWS, TITLES, Row, scores_of
from paper.published import DATA, PAPER, SETTING

IMAGES = Path(__file__).parent.parent / "docs" / "images"


def draw_all() -> None:
    """Draw every figure that there are results for."""
    theorems()
    panels()
    for data in TITLES:
        if any(scores_of(f"table3-{data}", row) for row in OURS):
            distributions(data)
            curves(data)
            weights(data)


def theorems() -> None:
    """Draw both theorems beside their bounds, and the way with diminishing steps."""
    measured = results.read_theorems()
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    panels = (("convex", "gap", "Theorem 1", "min H − H*"), ("smooth", "gradient", "Theorem 2", "min |∇H|²"))
    for axis, (name, value, title, label) in zip(axes, panels, strict=False):
        lines = measured[name]["lines"]
        rounds = [line["K"] for line in lines]
        axis.loglog(rounds, [max(line[value], 1e-16) for line in lines], "o-", label="seen")
        axis.loglog(rounds, [line[value + "_bound"] for line in lines], "--", color="0.4", label="bound")
        axis.set(title=title, xlabel="rounds K, alpha = λ/√K", ylabel=label)
        axis.legend()
    for name, value, _, label in panels:
        steps = measured[name]["diminishing"]
        axes[2].loglog([s["k"] for s in steps], [max(s[value], 1e-16) for s in steps], label=label.removeprefix("min "))
    axes[2].set(title="diminishing steps, alpha = λ / 2k^0.6", xlabel="round k")
    axes[2].legend(["Theorem 1: H − H*", "Theorem 2: |∇H|²"])
    _save(figure, "theorems")


def panels() -> None:
    """Draw the paper's twelve settings, each with every method's score: ours, with its spread over the seeds, and the
    paper's.
    """
    rows = [row for row in ROWS if row.run != "fedamp-local"][::-1]  # AutoAMP's at the bottom
    figure, axes = plt.subplots(3, 4, figsize=(13, 11), layout="constrained", sharey=True)
    for down, kind in enumerate(SETTING):
        for across, data in enumerate(DATA):
            _panel(axes[down, across], rows, kind, data)
    axes[0, 0].set_yticks(range(len(rows)), [row.title for row in rows])
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, title="best mean test accuracy, %", loc="outside lower center", ncols=4)
    _save(figure, "panels")


def _panel(axis: Any, rows: list[Row], kind: str, data: str) -> None:
    papers = {i: PAPER[kind][data][row.place] for i, row in enumerate(rows) if row.place is not None}
    axis.scatter(papers.values(), papers.keys(), facecolors="none", edgecolors="0.45", label="the paper's")
    found = {i: [one["best"] for one in scores_of(f"{kind}-{data}", row).values()] for i, row in enumerate(rows)}
    found = {i: best for i, best in found.items() if best}
    for auto, color, label in ((False, "C0", "here, ± sd of seeds"), (True, "C3", "AutoAMP, which is ours")):
        shown = {i: best for i, best in found.items() if (rows[i].run == "autoamp") == auto}
        means = [np.mean(best) for best in shown.values()]
        spreads = [np.std(best, ddof=1) if len(best) > 1 else 0.0 for best in shown.values()]
        axis.errorbar(means, list(shown), xerr=spreads, fmt="o", color=color, markersize=5, label=label)
    home = [i for i in found if rows[i].run == "autoamp" and rows[i].entry == counted(data, SETTING[kind])]
    axis.scatter([np.mean(found[i]) for i in home], home, s=110, facecolors="none", edgecolors="C3", label="taken home")
    missing = len(rows) - len(found)
    note = "" if not missing else f"  ({missing} of {len(rows)} not run)"
    axis.set_title(f"{TITLES[data]}, {SETTING[kind]}{note}", fontsize=9)
    axis.grid(alpha=0.3)


def distributions(data: str) -> None:
    """Draw every client's accuracy, its mean over the seeds, by method."""
    scores = {row.name: scores_of(f"table3-{data}", row) for row in ROWS}
    values = {
        name: np.mean([one["per_client"] for one in each.values()], axis=0) for name, each in scores.items() if each
    }
    figure, axis = plt.subplots(figsize=(9, 0.45 * len(values) + 1.4), layout="constrained")
    names = list(values)[::-1]
    axis.boxplot([values[name] for name in names], orientation="horizontal", tick_labels=names, widths=0.6)
    axis.set(xlabel="test accuracy of a client, %", title=f"{TITLES[data]}, practical setting")
    axis.grid(axis="x", alpha=0.3)
    _save(figure, f"distributions-{data}")


def curves(data: str) -> None:
    """Draw the mean test accuracy over the rounds, as the mean of the seeds; a run that ended early ends there."""
    figure, axis = plt.subplots(figsize=(9, 4.2), layout="constrained")
    lowest = 100.0
    for number, row in enumerate(ROWS):
        lines = [one["curve"][:90] for one in scores_of(f"table3-{data}", row).values()]
        if lines:
            shared = np.mean([line[: min(map(len, lines))] for line in lines], axis=0)
            style = {"own": "-", "received": "--"}[row.entry] if row in OURS else ":"
            axis.plot(range(1, len(shared) + 1), shared, style, color=f"C{number % 10}", label=row.name)
            lowest = min(lowest, shared.max())
    axis.set(xlabel="round", ylabel="mean test accuracy, %", title=f"{TITLES[data]}, practical setting")
    axis.set_ylim(bottom=lowest - 4)
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right center")
    _save(figure, f"curves-{data}")


def weights(data: str) -> None:
    """Draw who listens to whom early and late, and how well the groups are found over the rounds."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    drawn, labels = False, set[str]()
    for row in OURS:
        scores = scores_of(f"table3-{data}", row).get(0)
        if scores is None or row.run == "autoamp":  # which has no sigma: its weights are in autoamp.md
            continue
        run = scores["run"]
        value = run["description"]["method"]["sigma"]
        value = f"{value:g}" if isinstance(value, float) else value
        sigma = f"{row.name.partition(',')[0].removesuffix(' local')}, sigma {value}"
        if sigma not in labels:  # one run may stand for both of its models
            labels.add(sigma)
            axes[2].plot(range(1, len(run["recovery"]) + 1), run["recovery"], label=sigma)
        if row.entry == "received" and not drawn:
            drawn = True
            for axis, k in zip(axes, sorted(run["xi"], key=int), strict=False):
                others = np.array(run["xi"][k])
                np.fill_diagonal(others, np.nan)
                picture = axis.imshow(others, cmap="viridis", norm=PowerNorm(0.4, vmin=0))  # large groups weigh little
                axis.set(title=f"{sigma}, round {k}", xlabel="message of client", ylabel="cloud model of client")
                figure.colorbar(picture, ax=axis, label="weight ξ", shrink=0.8, pad=0.02)
    axes[2].set(xlabel="round", ylabel="adjusted Rand index", title="groups found from ξ alone", ylim=(-0.05, 1.05))
    axes[2].legend(fontsize=8)
    _save(figure, f"weights-{data}")


def _save(figure: Any, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.png", dpi=100, bbox_inches="tight", pad_inches=0.08)
    plt.close(figure)
