"""Inner products are the same, however a block is cut."""

import pytest
import torch

from fedamp.methods.attention import inner_products
from fedamp.methods.attention.inner_products import CUTS, InnerProducts

CPU = torch.device("cpu")


@pytest.mark.parametrize("widths", [[CUTS * 30], [CUTS * 30 + 3, 5], [CUTS - 1], [1, CUTS, CUTS * 40 + 7]])
@pytest.mark.parametrize("num_rows", [1, 5])
def test_they_are_those_of_one_product(widths, num_rows, monkeypatch):
    monkeypatch.setattr(inner_products.rows, "BLOCK", 40)
    g = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, num_rows, sum(widths), generator=g, dtype=torch.float64)
    found = InnerProducts(num_rows, CPU)
    for left, right in zip(one.split(widths, 1), other.split(widths, 1), strict=True):
        found.add(left, right)
    torch.testing.assert_close(found.sum(), one @ other.T, rtol=1e-12, atol=1e-12)


def test_small_blocks_and_many_rows_are_one_product():
    g = torch.Generator().manual_seed(0)
    few, many = torch.randn(20, 3000, generator=g).double(), torch.randn(300, 2000, generator=g).double()
    for rows in (few, many):  # the first is smaller than half a block, the second has enough rows to share
        found = InnerProducts(len(rows), CPU)
        found.add(rows, rows)
        assert torch.equal(found.sum(), rows @ rows.T)


def test_a_whole_block_of_few_rows_is_cut(monkeypatch):
    monkeypatch.setattr(inner_products.rows, "BLOCK", 40)
    rows = torch.eye(3, 6 * CUTS, dtype=torch.float64)
    found = InnerProducts(3, CPU)
    found.add(rows, rows)
    assert len(found._sums) == CUTS
    assert torch.equal(found._sums[0], torch.eye(3))
    assert not found._sums[1:].any()
    assert torch.equal(found.sum(), torch.eye(3))
