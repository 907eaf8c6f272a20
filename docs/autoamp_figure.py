"""Draw the picture of docs/autoamp.md: `python docs/autoamp_figure.py` (needs matplotlib).

It shows the spectrum that AutoAMP reads from its probe, on the digits: clients in five groups, and clients alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import fedamp
from fedamp.records.helping import Helping, helping

PICTURE = Path(__file__).parent / "images" / "autoamp-spectrum.png"
SETTINGS = {"practical": "five groups of clients", "iid": "clients alike"}


def main() -> None:
    """Run AutoAMP in both settings until its probe is done, and draw both spectra."""
    figure, axes = plt.subplots(1, len(SETTINGS), figsize=(9, 3), layout="constrained")
    for axis, (setting, title) in zip(axes, SETTINGS.items(), strict=True):
        found = helping(fedamp.run(method="autoamp", setting=setting, clients=20, rounds=3).history)
        assert found is not None
        draw_spectrum(axis, found)
        axis.set(title=f"{title}: rank {found.rank}", xlabel="direction")
    axes[0].set_ylabel("times the mean noise")
    figure.savefig(PICTURE, dpi=110)


def draw_spectrum(axis: Any, found: Helping) -> None:
    """Draw the eigenvalues of M; those left of the dotted line are more than noise."""
    places = range(1, len(found.spectrum) + 1)
    axis.bar(places, found.spectrum, color=["tab:blue" if i <= found.rank else "0.6" for i in places])
    axis.axvline(found.rank + 0.5, color="tab:orange", linestyle=":")
    axis.axhline(0, color="0.3", linewidth=0.8)
    axis.set_xticks([1, 5, 10, 15, 20])


if __name__ == "__main__":
    main()
