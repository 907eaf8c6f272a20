"""Draw the README's picture: `python docs/figures.py` (needs matplotlib).

Who listens to whom in the demo's setting, at three rounds; and every client's accuracy next to training alone.
"""

from pathlib import Path

import matplotlib.pyplot as plt

import fedamp

result = fedamp.run(method="heurfedamp")
alone = fedamp.run(method="separate")
figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained", width_ratios=[1, 1, 1, 1.25])
for axis, k in zip(axes[:3], (2, 5, 30), strict=True):
    others = result.xi[k - 1].clone().fill_diagonal_(float("nan"))
    picture = axis.imshow(others, cmap="viridis", vmin=0, vmax=0.15)
    axis.set(title=f"round {k}", xlabel="message of client", xticks=range(0, 20, 4), yticks=range(0, 20, 4))
axes[0].set_ylabel("cloud model of client")
figure.colorbar(picture, ax=axes[2], label="weight ξ", shrink=0.8)
axes[3].plot([80, 100], [80, 100], color="0.7", linewidth=1)
points = alone.summary.per_client, result.summary.per_client
axes[3].scatter(*points, c=result.facts["groups"], cmap="tab10", s=40, edgecolors="white")
axes[3].set(title="accuracy of the 20 clients", xlabel="training alone, %", ylabel="HeurFedAMP, %")
axes[3].set(xlim=(80, 100), ylim=(80, 100), aspect="equal")
figure.savefig(Path(__file__).parent / "images" / "demo.png", dpi=110)
