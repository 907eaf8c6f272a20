"""The attention functions are what the paper says; distances and cosines keep their digits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedamp.rows
from fedamp.methods.attention import (
    ATTENTION,
    MCP,
    SCAD,
    NegativeExponential,
    TamedSquareRoot,
    check_self_weight,
    cosines,
    effective_clients,
    gradient_weights,
    make_attention,
    median_distance,
    oracle_self_weight,
    self_weights,
    softmax_weights,
    squared_distances,
)

sigmas = st.floats(0.05, 50)
thetas = st.floats(2.1, 20)
names = st.sampled_from(sorted(ATTENTION))


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_literal_values():
    """Worked by hand from the definitions."""
    t = tensor(0, 1, 4, 100)
    torch.testing.assert_close(NegativeExponential(2)(t)[1], tensor(1 - math.exp(-0.5))[0])
    torch.testing.assert_close(NegativeExponential(2).derivative(t)[:2], tensor(0.5, 0.5 * math.exp(-0.5)))
    torch.testing.assert_close(TamedSquareRoot(2)(t), tensor(0, 0.25, 1, 9))
    torch.testing.assert_close(TamedSquareRoot(2).derivative(t), tensor(0.25, 0.25, 0.25, 0.05))
    torch.testing.assert_close(MCP(2, 3)(t), tensor(0, 2 - 1 / 6, 8 - 16 / 6, 6))
    torch.testing.assert_close(MCP(2, 3).derivative(t), tensor(2, 2 - 1 / 3, 2 - 4 / 3, 0))
    torch.testing.assert_close(SCAD(2, 3)(t), tensor(0, 2, (-16 + 48 - 4) / 4, 8))
    torch.testing.assert_close(SCAD(2, 3).derivative(t), tensor(2, 2, 1, 0))


@given(names, sigmas, thetas)
@settings(max_examples=80, deadline=None)
def test_definition_of_attention_inducing(name, sigma, theta):
    """Definition 1: A(0) = 0, increasing, concave, A' finite at 0; and A' is the derivative of A."""
    attention = make_attention(name, sigma, theta)
    t = torch.linspace(0, 3 * max(sigma * theta, sigma**2), 400, dtype=torch.float64)
    a, slope = attention(t), attention.derivative(t)
    assert a[0] == 0
    assert slope.isfinite().all()
    assert (slope >= 0).all()
    assert (slope.diff() <= 1e-12 * slope[0]).all()
    inner = t[1:].clone().requires_grad_()
    (by_autograd,) = torch.autograd.grad(attention(inner).sum(), inner)
    torch.testing.assert_close(by_autograd, slope[1:], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bad", [0, -1, math.inf, math.nan, "wide", True, None])
@pytest.mark.parametrize("name", sorted(ATTENTION))
def test_bad_sigma(name, bad):
    with pytest.raises(ValueError, match="sigma is"):
        make_attention(name, bad, 3.7)


@pytest.mark.parametrize("bad", [2, 0, math.inf, math.nan, "x"])
@pytest.mark.parametrize("name", ["mcp", "scad"])
def test_bad_theta(name, bad):
    with pytest.raises(ValueError, match=r"theta is .*expected a finite number over 2"):
        make_attention(name, 1.0, bad)


def test_unknown_attention_names_the_choices():
    with pytest.raises(ValueError, match=r"did you mean 'scad'\?.*mcp, negative-exponential, scad, tamed"):
        make_attention("scud", 1.0, 3.0)


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


@given(st.integers(1, 9), st.floats(1e-6, 1e6), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_gradient_weights_are_a_convex_combination(m, alpha, seed):
    rows = torch.randn(m, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    xi, used = gradient_weights(NegativeExponential(3.0).derivative(squared_distances(rows)), alpha)
    torch.testing.assert_close(xi.sum(1), torch.ones(m, dtype=torch.float64), rtol=0, atol=1e-12)
    assert (xi >= 0).all()
    assert used <= alpha
    if used < alpha:
        # Lowered no further than needed: somebody has nothing left for itself.
        assert xi.diagonal().min() < 1e-12


def test_softmax_weights_far_apart_stay_finite():
    xi = softmax_weights(-squared_distances(tensor(0, 1, 1e6)[:, None]), tensor(0.2, 0.2, 0.2))
    torch.testing.assert_close(xi, tensor(0.2, 0.8, 0, 0.8, 0.2, 0, 0, 0.8, 0.2).reshape(3, 3))


def test_effective_clients():
    torch.testing.assert_close(effective_clients(torch.eye(4)), torch.ones(4))
    torch.testing.assert_close(effective_clients(torch.full((4, 4), 0.25)), torch.full((4,), 4.0))


def test_self_weight_in_its_forms():
    assert self_weights("uniform", 4).tolist() == [0.25] * 4
    assert self_weights(0.5, 2).tolist() == [0.5, 0.5]
    assert self_weights(check_self_weight([0.1, 0.2]), 2).tolist() == [0.1, 0.2]
    assert oracle_self_weight([0, 0, 1, 2, 0]) == (1 / 3, 1 / 3, 1, 1, 1 / 3)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (1.5, "from 0 to 1"),
        (True, "from 0 to 1"),
        ([0.5, -1], "client 1"),
        ("unifrom", "did you mean"),
        ("oracle", "true groups"),
        (None, "expected a number"),
        (["a"], "expected a number"),
    ],
)
def test_bad_self_weight(bad, word):
    with pytest.raises(ValueError, match=word):
        check_self_weight(bad)


def test_self_weight_of_another_length():
    with pytest.raises(ValueError, match="2 entries for 3 clients"):
        self_weights((0.5, 0.5), 3)


def test_oracle_without_groups():
    with pytest.raises(ValueError, match="this setting has none"):
        oracle_self_weight(None)
