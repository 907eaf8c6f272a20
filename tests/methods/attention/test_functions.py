"""The attention functions are what the paper says."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedamp.methods.attention import ATTENTION, MCP, SCAD, NegativeExponential, TamedSquareRoot, make_attention

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
    with pytest.raises(ValueError, match=r"theta is .*expected a finite number above 2"):
        make_attention(name, 1.0, bad)


def test_unknown_attention_names_the_choices():
    with pytest.raises(ValueError, match=r"did you mean 'scad'\?.*mcp, negative-exponential, scad, tamed"):
        make_attention("scud", 1.0, 3.0)
