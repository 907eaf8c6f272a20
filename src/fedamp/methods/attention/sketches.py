"""Models as short sketches: a random projection d -> k that keeps distances and angles, for O(m d) instead of O(m^2 d).

The columns are cut into runs of k. In each run every column has a random sign, and the run as a whole a random shift:

    S x = sum over runs r of  shift_r(sign_r * x_r),        E|S x|^2 = |x|^2

Columns of one run never meet; those of two runs meet with probability 1/k. So with x_r the part of x in run r

    Var|S x|^2 = 2/k (|x|^4 - sum_r |x_r|^4)  <=  2/k |x|^4

as for a dense Gaussian projection, or less. S is linear: the sketch of a mixture is the mixture of sketches. It depends
on nothing but k, the seed and a column's number: every process makes the same one, and a client can make its own.
It is a count sketch (Charikar et al., 2002; Weinberger et al., 2009) whose buckets are drawn for a run at a time.
"""

import torch
from torch import Tensor

from fedamp.ranks.blocks import share
from fedamp.row_store import computing_device
from fedamp.rows import column_blocks, double_blocks
from fedamp.seeds import generator

SHEET = 1 << 20
"""Columns, about, whose signs and shifts are drawn at once: what is held of S is bounded."""


def sketch(rows: Tensor, size: int, seed: int = 0) -> Tensor:
    """Return sketches of rows `(n, d)`, `(n, k)` in float64, k = `size`: of all rows by the same projection.

    With d <= k nothing is lost: a sketch then holds the row's own values, with other signs and in other places.
    """
    there = computing_device(rows)
    total = torch.zeros((len(rows), size), dtype=torch.float64, device=there)
    work, sheets = share(column_blocks(rows, of=size)), _Sheets(size, seed, there)
    for block, (part,) in double_blocks(rows, blocks=work.mine):
        for begin in range(0, part.shape[1], size):
            signs, shift = sheets.run((block.start + begin) // size)
            run = part[:, begin : begin + size]
            straight = min(run.shape[1], size - shift)  # columns that stay in order; the others go round to the front
            total[:, shift : shift + straight].addcmul_(run[:, :straight], signs[:straight])
            total[:, : run.shape[1] - straight].addcmul_(run[:, straight:], signs[straight : run.shape[1]])
    return work.summed(total).to(rows.device)


class _Sheets:
    """Signs and shifts of runs, asked for in order: those of the last sheet are kept."""

    def __init__(self, size: int, seed: int, device: torch.device) -> None:
        self._size, self._seed, self._device = size, seed, device
        self._runs, self._sheet = max(1, SHEET // size), -1

    def run(self, number: int) -> tuple[Tensor, int]:
        """Return the signs `(k,)` of a run, +1 or -1 in float64, and its shift."""
        sheet, place = divmod(number, self._runs)
        if sheet != self._sheet:
            drawn = generator(self._seed, "sketch", self._size, sheet)
            self._shifts = drawn.integers(self._size, size=self._runs).tolist()
            bits = drawn.integers(2, size=(self._runs, self._size), dtype="int8")
            self._signs, self._sheet = torch.from_numpy(bits).to(self._device), sheet
        return 1 - 2 * self._signs[place].double(), self._shifts[place]
