"""Distances and cosines keep their digits."""

import pytest
import torch

import fedamp.rows
from fedamp.methods.attention import cosines, median_distance, noise_in_length, squared_distances
from fedamp.methods.attention.bias_variance import signal_and_noise


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("dimension", [10, 1000, 20_003])
def test_distances_of_nearly_equal_float32_rows(dimension):
    g = torch.Generator().manual_seed(dimension)
    common = torch.randn(dimension, generator=g)
    apart = torch.randn(100, dimension, generator=g)
    rows = common + 1e-3 * common.norm() * apart / apart.norm(dim=1, keepdim=True)
    exact = torch.stack([((rows.double() - row) ** 2).sum(1) for row in rows.double()])
    pair = ~torch.eye(100, dtype=torch.bool)
    error = ((squared_distances(rows) - exact).abs() / exact)[pair]
    assert error.max() < 1e-6
    # The textbook expansion in float32 has no digit left here: the test above can fail.
    norms = (rows * rows).sum(1)
    naive = norms[:, None] + norms - 2 * rows @ rows.T
    assert ((naive - exact).abs() / exact)[pair].max() > 1e-2


def test_distances_of_rows_that_differ_by_a_billionth():
    rows = torch.randn(5, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = rows[:1] + 1e-9 * rows
    exact = torch.stack([((rows - row) ** 2).sum(1) for row in rows])
    torch.testing.assert_close(squared_distances(rows), exact, rtol=1e-6, atol=0)


def test_cosines_against_float64(monkeypatch):
    monkeypatch.setattr(fedamp.rows, "BLOCK", 1 << 12)
    rows = torch.randn(100, 50_000, generator=torch.Generator().manual_seed(1)) + 3
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    assert (cosines(rows) - unit @ unit.T).abs().max() < 1e-9


def test_blocks_make_no_difference(monkeypatch):
    rows = torch.randn(7, 1001, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    whole = squared_distances(rows), cosines(rows), fedamp.rows.mix(torch.eye(7), rows)
    monkeypatch.setattr(fedamp.rows, "BLOCK", 70)
    cut = squared_distances(rows), cosines(rows), fedamp.rows.mix(torch.eye(7), rows)
    for a, b in zip(whole, cut, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [torch.zeros(3, 4), torch.ones(1, 4), torch.full((5, 4), 0.1), torch.ones(3, 0)])
def test_nothing_to_tell_apart_is_finite(rows):
    assert (squared_distances(rows) == 0).all()
    assert cosines(rows).isfinite().all()
    assert median_distance(squared_distances(rows)) == 0


def test_median_over_pairs():
    assert median_distance(squared_distances(tensor(0, 1, 3)[:, None])) == 4  # 1, 4, 9
    assert median_distance(squared_distances(tensor(0, 1, 3, 7)[:, None])) == (9 + 16) / 2  # 1 4 9 16 36 49
    # Most pairs are equal: a scale of 0 would say nothing.
    assert median_distance(squared_distances(tensor(0, 0, 0, 0, 2)[:, None])) == 4


def test_products_leave_the_models_as_they_are(monkeypatch):
    """Blocks are changed in place: they must be copies, of float64 rows too."""
    monkeypatch.setattr(fedamp.rows, "BLOCK", 20)
    for dtype in (torch.float32, torch.float64):
        rows = torch.randn(5, 23, dtype=dtype, generator=torch.Generator().manual_seed(3))
        before = rows.clone()
        squared_distances(rows), cosines(rows, rows[0]), noise_in_length(rows, torch.ones(5, 1, dtype=torch.float64))
        signal_and_noise(rows, rows.flip(0), torch.ones(5))
        assert torch.equal(rows, before)
