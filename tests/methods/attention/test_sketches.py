"""Sketches keep distances: unbiased, with the variance of the formula, linear, and the same wherever they are made."""

import pytest
import torch

import fedamp.rows
from fedamp.errors import UserError
from fedamp.methods import make_method
from fedamp.methods.attention import cosines, sketch, sketches, squared_distances
from fedamp.ranks import blocks
from fedamp.rows import mix


@pytest.fixture(autouse=True)
def small_sheets(monkeypatch):
    """Let a model have several sheets, and each be drawn quickly."""
    monkeypatch.setattr(sketches, "SHEET", 128)


def models(m, d, seed=0, dtype=torch.float64):
    return torch.randn(m, d, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def test_squared_lengths_are_unbiased_with_the_variance_of_the_formula():
    k, draws = 16, 4000
    x = models(1, 70)
    x[0, :20] *= 3  # runs of unequal length: of 16, 16, 16, 16 and 6 columns
    found = torch.stack([sketch(x, k, seed).square().sum() for seed in range(draws)])
    whole, runs = x.square().sum(), torch.stack([run.square().sum() for run in x[0].split(k)])
    variance = 2 / k * (whole**2 - runs.square().sum())
    assert abs(found.mean() - whole) < 4 * (variance / draws).sqrt()
    # Chi-squared-like: the variance of a variance is about (kurtosis - 1) / draws, here some 7 / 4000.
    assert found.var() == pytest.approx(float(variance), rel=0.2)
    assert variance < 0.9 * 2 / k * whole**2, "columns of one run never meet: the test can tell the two formulas apart"


def test_inner_products_are_unbiased():
    x = models(2, 50, seed=1)
    found = torch.stack([sketch(x, 8, seed).prod(0).sum() for seed in range(4000)])
    assert abs(found.mean() - x.prod(0).sum()) < 4 * found.std() / 4000**0.5


def test_every_column_goes_to_one_place_with_a_sign():
    s = sketch(torch.eye(300, dtype=torch.float64), 64)
    assert torch.equal(s.abs().sum(1), torch.ones(300, dtype=torch.float64))
    assert torch.equal(s.abs().max(1).values, torch.ones(300, dtype=torch.float64))
    assert 0.35 < (s.sum(1) > 0).double().mean() < 0.65
    assert (s[:64].abs().sum(0) == 1).all(), "columns of one run do not meet"


def test_a_mixture_is_sketched_as_a_mixture_of_sketches():
    w, xi = models(6, 1001), torch.softmax(models(4, 6, seed=3), 1)
    torch.testing.assert_close(sketch(mix(xi, w), 64), xi @ sketch(w, 64), rtol=1e-12, atol=1e-12)


def test_a_client_can_make_its_own():
    w = models(5, 1001, dtype=torch.float32)
    alone = torch.cat([sketch(row[None], 64) for row in w])
    assert torch.equal(alone, sketch(w, 64))


def test_nothing_is_lost_where_a_model_is_no_longer_than_its_sketch():
    w = models(5, 60)
    torch.testing.assert_close(squared_distances(sketch(w, 64)), squared_distances(w), rtol=1e-12, atol=0)
    torch.testing.assert_close(cosines(sketch(w, 64)), cosines(w), rtol=0, atol=1e-12)


def test_equal_models_stay_exactly_equal():
    row = models(1, 1001, dtype=torch.float32)
    assert (squared_distances(sketch(row.expand(7, -1), 64)) == 0).all()


def test_models_that_differ_by_a_millionth_keep_their_digits():
    w = models(1, 5000) + 1e-6 * models(4, 5000, seed=4)
    exact = squared_distances(w)
    pair = exact > 0
    assert ((squared_distances(sketch(w, 1024)) / exact)[pair] - 1).abs().max() < 5 * (2 / 1024) ** 0.5


@pytest.mark.parametrize("entries", [64, 1000, 1 << 30])
def test_blocks_and_sheets_make_no_difference(monkeypatch, entries):
    w = models(3, 1001)
    whole = sketch(w, 64)
    monkeypatch.setattr(fedamp.rows, "BLOCK", entries)
    torch.testing.assert_close(sketch(w, 64), whole, rtol=1e-12, atol=1e-12)


class Other:
    """One of two processes, whose sums are noted and added."""

    size = 2

    def __init__(self, rank, sums):
        self.rank, self.sums = rank, sums

    def stack(self, purpose, mine, counts):
        self.sums.append(mine[0])
        return torch.stack([mine[0], torch.zeros_like(mine[0])])


def test_several_processes_make_the_same(monkeypatch):
    w = models(3, 1001)
    whole, sums = sketch(w, 64), []
    monkeypatch.setattr(fedamp.rows, "BLOCK", 200)
    for rank in range(2):
        with blocks.together(Other(rank, sums)):
            sketch(w, 64)
    assert all(part.any() for part in sums)
    torch.testing.assert_close(sums[0] + sums[1], whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["fedamp", "heurfedamp"])
def test_weights_come_from_sketches_if_asked_for(name):
    w, none = models(5, 2000, dtype=torch.float32), torch.zeros(5, 1, dtype=torch.float64)
    w[1] = w[0] + 0.1 * w[1]
    exact, long, short = (make_method(name, sketch=k).collaboration_weights(w, none, 1.0)[0] for k in (0, 2000, 64))
    torch.testing.assert_close(long, exact, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(short, exact, atol=1e-4)
    assert torch.equal(short[0].argsort(descending=True)[:1], exact[0].argsort(descending=True)[:1])


@pytest.mark.parametrize("wrong", [63, -1, 100.5, "many"])
def test_a_sketch_has_enough_numbers_or_none(wrong):
    with pytest.raises(UserError, match=r"sketch is .*; expected a whole number of 64 or more"):
        make_method("fedamp", sketch=wrong)
