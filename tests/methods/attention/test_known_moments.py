"""Gaussian clients with known M and v: the error is the closed form, and nobody's weights have a smaller one."""

import pytest
import torch
from torch import Tensor

from fedamp.methods.attention.bias_variance import expected_error, least_error_weights

DRAWS = 2000
DIMENSIONS = 12
SAMPLES = torch.tensor([20.0, 50.0, 30.0, 200.0, 80.0, 40.0], dtype=torch.float64)
GROUP = torch.tensor([0, 0, 1, 1, 2, 2])
KINDS = ["alike", "groups", "groups that hardly differ", "all different"]


def known(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return theta `(m, d)`, M and v of six clients."""
    g = torch.Generator().manual_seed(3)
    centres = torch.randn(len(SAMPLES), DIMENSIONS, generator=g, dtype=torch.float64)
    theta = {
        "alike": centres[[0] * 6],
        "groups": 2 * centres[GROUP],
        "groups that hardly differ": 0.2 * centres[GROUP],
        "all different": centres,
    }[kind]
    centred = theta - theta.mean(0)
    return theta, centred @ centred.T, DIMENSIONS * 20 / SAMPLES


def others(kind: str) -> dict[str, Tensor]:
    """Return the weights of those that the program is measured against."""
    same = (GROUP[:, None] == GROUP).double() * SAMPLES
    return {
        "fedavg": (SAMPLES / SAMPLES.sum()).expand(6, 6),
        "separate": torch.eye(6, dtype=torch.float64),
        "clustering": same / same.sum(1, keepdim=True),
    }


def squared_errors(xi: Tensor, theta: Tensor, noise: Tensor) -> Tensor:
    """Return |sum_j xi_ij w_j - theta_i|^2 of every draw and client, `(draws, m)`, always of the same draws."""
    g = torch.Generator().manual_seed(11)
    e = torch.randn(DRAWS, *theta.shape, generator=g, dtype=torch.float64)
    w = theta + e * (noise / DIMENSIONS).sqrt()[:, None]
    return (xi @ w - theta).square().sum(2)


def mean_and_error(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over draws and its standard error."""
    return values.mean(0), values.std(0) / DRAWS**0.5


@pytest.mark.parametrize("kind", KINDS)
def test_the_mixtures_mean_squared_error_is_the_closed_form(kind):
    theta, signal, noise = known(kind)
    for xi in (least_error_weights(signal, noise), *others(kind).values()):
        mean, error = mean_and_error(squared_errors(xi, theta, noise))
        closed = expected_error(xi, signal, noise)
        assert ((mean - closed).abs() < 4 * error).all()
        assert (error < 0.05 * closed).all()  # so that the line above can fail


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_below_that_of_fedavg_separate_and_clustering(kind):
    theta, signal, noise = known(kind)
    xi = least_error_weights(signal, noise)
    mine = squared_errors(xi, theta, noise).mean(1)
    for name, weights in others(kind).items():
        assert (expected_error(xi, signal, noise) <= expected_error(weights, signal, noise) + 1e-12).all()
        if (kind, name) == ("alike", "fedavg"):
            assert torch.allclose(xi, weights, atol=1e-12)  # nothing can be better there
            continue
        mean, error = mean_and_error(squared_errors(weights, theta, noise).mean(1) - mine)
        assert mean > 4 * error, name
