"""The weights of least expected error: against a general solver, in their limits, and on Gaussian clients."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fedamp.methods.attention.bias_variance import (
    collaboration,
    expected_error,
    least_error_weights,
    signal_and_noise,
)


def random_problem(m, seed, rank=3):
    g = torch.Generator().manual_seed(seed)
    theta = torch.randn(m, rank, generator=g, dtype=torch.float64)
    noise = 0.2 + torch.rand(m, generator=g, dtype=torch.float64)
    theta = theta - theta.mean(0)
    return theta @ theta.T, noise


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("m", [2, 3, 7, 12])
def test_the_program_against_a_general_solver(m, seed):
    signal, noise = random_problem(m, seed)
    xi = least_error_weights(signal, noise)
    assert torch.allclose(xi.sum(1), torch.ones(m, dtype=torch.float64), atol=1e-12)
    assert (xi >= 0).all()
    q = (signal + noise.diag()).numpy()
    for i in range(m):
        line = signal[i].numpy()
        found = minimize(
            lambda x, line=line: x @ q @ x / 2 - line @ x,
            np.full(m, 1 / m),
            jac=lambda x, line=line: q @ x - line,
            bounds=[(0, 1)] * m,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones_like(x)},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        mine = xi[i].numpy()
        assert mine @ q @ mine / 2 - line @ mine <= found.fun + 1e-12
        # The conditions of the minimum, exactly: one slope wherever there is weight, and no smaller one elsewhere.
        slope = q @ mine - line
        level = slope[mine > 0].mean()
        assert np.abs(slope[mine > 0] - level).max() < 1e-9
        assert (slope[mine == 0] >= level - 1e-9).all()


def test_nobody_differs_gives_fedavgs_weights():
    samples = torch.tensor([10.0, 20.0, 30.0, 140.0], dtype=torch.float64)
    xi = least_error_weights(torch.zeros(4, 4, dtype=torch.float64), 3 / samples)
    assert torch.allclose(xi, (samples / samples.sum()).expand(4, 4), atol=1e-12)


def test_groups_far_apart_give_the_groups_means():
    centres = 1e4 * torch.eye(3, dtype=torch.float64)[[0, 0, 1, 1, 1, 2]]
    centres = centres - centres.mean(0)
    samples = torch.tensor([10.0, 30.0, 5.0, 5.0, 10.0, 8.0], dtype=torch.float64)
    xi = least_error_weights(centres @ centres.T, 1 / samples)
    group = torch.tensor([0, 0, 1, 1, 1, 2])
    same = group[:, None] == group
    expected = torch.where(same, samples, 0) / torch.where(same, samples, 0).sum(1, keepdim=True)
    assert torch.allclose(xi, expected, atol=1e-6)


@pytest.mark.parametrize("m", [2, 3, 20])
def test_all_different_keep_to_themselves(m):
    theta = 1e4 * torch.eye(m, dtype=torch.float64)
    theta = theta - theta.mean(0)
    xi = least_error_weights(theta @ theta.T, torch.ones(m, dtype=torch.float64))
    assert (xi.diagonal() > 1 - 1e-6).all()


def test_one_client_and_equal_models():
    model = torch.randn(1, 9, dtype=torch.float64)
    one = collaboration(model, model + 1, model, torch.tensor([5.0]), torch.tensor([0.3]))
    assert one.xi == 1
    samples = torch.tensor([1.0, 2.0, 3.0])
    equal = collaboration(*[model.repeat(3, 1)] * 2, model, samples, torch.full((3,), 0.3))
    assert torch.allclose(equal.xi, (samples / 6).double().expand(3, 3), atol=1e-12)


def test_a_client_split_into_two_halves_keeps_its_total_weight():
    signal, noise = random_problem(5, 0)
    xi = least_error_weights(signal, noise)
    copy = torch.tensor([0, 1, 2, 3, 4, 4])
    split = noise[copy].clone()
    split[4:] *= 2  # half the samples: twice the noise
    twice = least_error_weights(signal[copy][:, copy], split)
    assert torch.allclose(twice[:4, 4] + twice[:4, 5], xi[:4, 4], atol=1e-9)
    assert torch.allclose(twice[:4, :4], xi[:4, :4], atol=1e-9)


def test_order_and_scale_do_not_matter():
    signal, noise = random_problem(6, 1)
    xi = least_error_weights(signal, noise)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(least_error_weights(signal[order][:, order], noise[order]), xi[order][:, order], atol=1e-9)
    assert torch.allclose(least_error_weights(1e-6 * signal, 1e-6 * noise), xi, atol=1e-9)


def gaussian(m, d, seed, kind, samples):
    """Two half models of each client, and its true theta."""
    g = torch.Generator().manual_seed(seed)
    size = {"alike": 0.0, "groups": 1.0, "different": 1.0}[kind]
    centres = size * torch.randn(m, d, generator=g, dtype=torch.float64)
    theta = centres[torch.arange(m) % 3] if kind == "groups" else centres

    def half():
        return theta + torch.randn(m, d, generator=g, dtype=torch.float64) * (2 * 20 / samples).sqrt()[:, None]

    return half(), half(), theta


@pytest.mark.parametrize("kind", ["alike", "groups", "different"])
@pytest.mark.parametrize("m", [2, 3, 10, pytest.param(40, marks=pytest.mark.many)])
@pytest.mark.parametrize("unequal", [False, True])
def test_on_gaussian_clients_the_error_is_nearly_that_of_known_moments(kind, m, unequal):
    samples = (
        torch.linspace(20, 400, m, dtype=torch.float64) if unequal else torch.full((m,), 100.0, dtype=torch.float64)
    )
    excess, alone, fedavg = [], [], []
    for seed in range(10):
        a, b, theta = gaussian(m, 400, seed, kind, samples)
        signal, noise, _ = signal_and_noise(a, b, samples)
        centred = theta - (samples / samples.sum()) @ theta
        truth, v = centred @ centred.T, 400 * 20 / samples
        best = expected_error(least_error_weights(truth, v), truth, v)
        mine = expected_error(least_error_weights(signal, noise), truth, v)
        everyone = (samples / samples.sum()).expand(m, m)
        excess.append((mine / best).mean()), alone.append((mine / v).mean())
        fedavg.append((mine / expected_error(everyone, truth, v)).mean())
    assert torch.stack(excess).mean() < 1.3
    assert torch.stack(alone).mean() < 1.02
    assert torch.stack(fedavg).mean() < 1.3


def test_who_has_left_is_not_heard_by_those_it_left_and_keeps_its_like():
    """Clients 0 and 1 are alike, and so are 2 to 5, not far from them; the first two were found to be badly fitted."""
    g = torch.Generator().manual_seed(0)
    theta = torch.zeros(6, 400, dtype=torch.float64)
    theta[:2, 0] = 12.0
    a, b = (theta + torch.randn(6, 400, generator=g, dtype=torch.float64) * 0.1 for _ in range(2))
    start, samples = torch.zeros(1, 400, dtype=torch.float64), torch.full((6,), 50.0)
    plain = collaboration(a, b, start, samples, torch.full((6,), 0.02)).xi
    assert plain[:2, 2:].min() > 0.02
    assert plain[2:, :2].min() > 0.02
    left = collaboration(a, b, start, samples, torch.tensor([2.0, 2.0, 0.02, 0.02, 0.02, 0.02])).xi
    assert left[:2, :2].min() > 0.3
    assert left[2:, :2].max() == 0
    torch.testing.assert_close(left[2:, 2:], torch.full((4, 4), 0.25, dtype=torch.float64), rtol=0, atol=0.02)
