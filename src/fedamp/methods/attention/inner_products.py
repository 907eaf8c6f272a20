"""Inner products of all pairs of rows, summed over blocks of columns."""

import torch
from torch import Tensor

from fedamp import rows

CUTS = 8
"""Products that a block is cut into on a CPU: as many cores have something to do."""
FEW = 256
"""Rows up to which a block is cut."""


class InnerProducts:
    """A sum over blocks of one @ other.T, `(m, m)` in float64.

    A processor's library shares a product among its cores by the result's entries, of which there are few here, each of
    them long. So a whole block of few rows is cut into products of its own, which the cores take side by side.
    """

    def __init__(self, num_rows: int, device: torch.device) -> None:
        cuts = CUTS if device.type == "cpu" and num_rows <= FEW else 1
        self._sums = torch.zeros((cuts, num_rows, num_rows), dtype=torch.float64, device=device)

    def add(self, one: Tensor, other: Tensor) -> None:
        """Add the products of all rows of two blocks `(m, k)`."""
        cuts, width = len(self._sums), 0
        if cuts > 1 and one.numel() >= rows.BLOCK // 2:
            width = one.shape[1] // cuts * cuts
            left, right = (torch.unflatten(part[:, :width], 1, (cuts, -1)).transpose(0, 1) for part in (one, other))
            self._sums.baddbmm_(left, right.transpose(1, 2))
        self._sums[0].addmm_(one[:, width:], other[:, width:].T)

    def sum(self) -> Tensor:
        """Return what has been added, `(m, m)`."""
        return self._sums.sum(0)
