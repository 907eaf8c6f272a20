"""Collaboration weights are convex combinations, whatever they are made from."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedamp.methods.attention import (
    NegativeExponential,
    check_self_weight,
    effective_clients,
    gradient_weights,
    oracle_self_weight,
    self_weights,
    softmax_weights,
    squared_distances,
)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


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
