"""Who listens to whom, from two half models of each client: limits, opposites, poison, and a client in two parts.

`halves` gives each half model its noise in a direction of its own. So the estimates of M and v are exact, and what
holds of the program has to hold of them.
"""

import pytest
import torch
from torch import Tensor

from fedamp.methods.attention.bias_variance import FAR, collaboration, far_out, opposed, signal_and_noise

LEVEL = 20.0
"""Noise times samples."""


def halves(theta: Tensor, samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return two half models of each client and the start; v_i = LEVEL/n_i, and each half has twice that."""
    m = len(theta)
    noise = (2 * LEVEL / samples).sqrt().diag()
    nothing = torch.zeros_like(noise)
    a, b = torch.cat([theta, noise, nothing], 1), torch.cat([theta, nothing, noise], 1)
    return a, b, torch.zeros(1, theta.shape[1] + 2 * m, dtype=torch.float64)


def found(a: Tensor, b: Tensor, start: Tensor, samples: Tensor) -> Tensor:
    return collaboration(a, b, start, samples, torch.full((len(a),), 0.3)).xi


def weights(theta: Tensor, samples: Tensor) -> Tensor:
    return found(*halves(theta, samples), samples)


def sizes(m: int) -> Tensor:
    return torch.linspace(40, 200, m, dtype=torch.float64)


def ways(m: int, d: int, seed: int) -> Tensor:
    return torch.randn(m, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MANY = [2, 3, 10]


@pytest.mark.parametrize("m", MANY)
def test_of_such_halves_the_estimates_are_exact(m):
    theta, samples = 10 * ways(m, 4, 5), sizes(m)
    a, b, _ = halves(theta, samples)
    signal, noise, _ = signal_and_noise(a, b, samples)
    centred = theta - samples / samples.sum() @ theta
    assert torch.allclose(signal, centred @ centred.T, rtol=0, atol=1e-9)
    assert torch.allclose(noise, LEVEL / samples, rtol=1e-12)


@pytest.mark.parametrize("m", MANY)
def test_nobody_differs_gives_exactly_fedavgs_weights(m):
    samples = sizes(m)
    xi = weights(torch.ones(m, 5, dtype=torch.float64), samples)
    assert torch.allclose(xi, (samples / samples.sum()).expand(m, m), rtol=0, atol=1e-12)


@pytest.mark.parametrize("group", [[0, 1], [0, 0], [0, 0, 1], [0, 1, 1], [0, 0, 1, 1, 1, 2]])
def test_groups_far_apart_give_the_groups_means(group):
    samples, group = sizes(len(group)), torch.tensor(group)
    same = (group[:, None] == group) * samples
    xi = weights(1e4 * torch.eye(3, dtype=torch.float64)[group], samples)
    assert torch.allclose(xi, same / same.sum(1, keepdim=True), rtol=0, atol=1e-6)


@pytest.mark.parametrize("m", MANY)
def test_all_different_keep_to_themselves(m):
    xi = weights(100 * torch.eye(m, dtype=torch.float64), sizes(m))
    assert (xi.diagonal() > 1 - 1e-3).all()


@pytest.mark.parametrize("m", [2, 3, 6])
def test_a_client_in_two_parts_keeps_its_total_weight(m):
    """To the others two parts of half the samples are what the whole client was."""
    theta, samples = 0.5 + 0.3 * ways(m, 4, 0), sizes(m)
    part = torch.tensor([*range(m), m - 1])
    whole = weights(theta, samples)
    parts = weights(theta[part], samples[part] / torch.tensor([*[1.0] * (m - 1), 2, 2], dtype=torch.float64))
    assert 0.01 < whole[0, m - 1] < 0.99  # there is a weight to keep
    others = slice(m - 1)
    assert torch.allclose(parts[others, m - 1 :].sum(1), whole[others, m - 1], rtol=0, atol=1e-9)
    assert torch.allclose(parts[others, others], whole[others, others], rtol=0, atol=1e-9)


@pytest.mark.parametrize("m", MANY)
def test_opposites_are_found(m):
    """The first client learned the opposite of all others."""
    way = ways(1, 50, 1).repeat(m, 1)
    way[0] *= -1
    a, b, start = halves(way, sizes(m))
    expected = torch.zeros(m, m, dtype=torch.bool)
    expected[0, 1:] = expected[1:, 0] = True
    assert (opposed(a, b, start) == expected).all()
    xi = found(a, b, start, sizes(m))
    assert (xi[expected] == 0).all()
    assert torch.allclose(xi.sum(1), torch.ones(m, dtype=torch.float64))


@pytest.mark.parametrize("m", MANY)
def test_orthogonal_and_alike_are_no_opposites(m):
    for way in (torch.eye(m, dtype=torch.float64), torch.ones(m, 1, dtype=torch.float64)):
        assert not opposed(*halves(10 * way, sizes(m))).any()


@pytest.mark.parametrize("m", MANY)
@pytest.mark.parametrize(("together", "length"), [(True, 3.0), (False, 0.5)])
def test_noise_does_not_make_opposites(m, together, length):
    """Noise three times as long as a common way, or half as long as ways of their own."""
    start = torch.zeros(1, 400, dtype=torch.float64)
    for seed in range(50):
        theta, noise = ways(m, 400, seed), length * ways(2 * m, 400, seed + 1000)
        theta = theta[[0] * m] if together else theta
        assert not opposed(theta + noise[:m], theta + noise[m:], start).any()


@pytest.mark.parametrize("m", [3, 10])
@pytest.mark.parametrize("poison", ["longer", "random", "opposite"])
def test_a_poisoned_probe_is_found_and_changes_nothing_for_the_others(m, poison):
    theta, samples = 1 + 0.3 * ways(m, 30, 2), sizes(m)
    a, b, start = halves(theta, samples)
    send = {"longer": lambda x: 100 * x, "opposite": lambda x: -100 * x, "random": lambda x: noise_like(x, 100)}[poison]
    a[-1], b[-1] = send(a[-1]), send(b[-1])
    far = far_out(a, b, start, samples)
    assert (far > FAR).tolist() == [False] * (m - 1) + [True]
    xi, without = found(a, b, start, samples), found(a[:-1], b[:-1], start, samples[:-1])
    assert torch.allclose(xi[:-1, :-1], without, rtol=0, atol=1e-9)
    assert (xi[:-1, -1] == 0).all()
    assert xi[-1, -1] == 1


def noise_like(row: Tensor, times: float) -> Tensor:
    other = torch.randn(row.shape, generator=torch.Generator().manual_seed(9), dtype=row.dtype)
    return times * other / other.norm() * row.norm()


@pytest.mark.parametrize("m", MANY)
def test_more_samples_may_go_as_much_further(m):
    samples = torch.full((m,), 30.0, dtype=torch.float64)
    samples[0] *= 100
    theta = torch.ones(m, 8, dtype=torch.float64)
    theta[0] *= 100
    assert (far_out(*halves(theta, samples), samples) <= FAR).all()


def test_of_two_clients_neither_is_far_out():
    """Two lengths have no majority: whoever is right, both are within twice their median."""
    a, b, start = halves(torch.tensor([[1.0], [100.0]], dtype=torch.float64), sizes(2))
    assert (far_out(a, b, start, sizes(2)) <= 2).all()
