"""Weights under privacy's noise: closed forms, and Gaussian clients against weights that do not know of it."""

import pytest
import torch
from torch import Tensor

from fedamp.methods import FedAMP, HeurFedAMP
from fedamp.methods.attention import noise_in_length, squared_distances
from fedamp.methods.attention.bias_variance import (
    FAR,
    collaboration,
    expected_error,
    far_out,
    least_error_weights,
    opposed,
    signal_and_noise,
)

KINDS = {
    "equal": lambda x: torch.ones_like(x),
    "uneven": lambda x: 10 ** (3 * x - 2),
    "one": lambda x: 100.0 ** x.floor(),
}


def rising(m: int) -> Tensor:
    return torch.linspace(0, 1, m, dtype=torch.float64)


def orthogonal_halves(v: Tensor) -> tuple[Tensor, Tensor]:
    """Return half models of clients that do not differ, whose noises, of variance 2 v, meet none of the others'."""
    m = len(v)
    whole = torch.eye(2 * m, dtype=torch.float64) * (2 * v).sqrt().repeat(2)[:, None]
    return whole[:m], whole[m:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [2, 5, 50])
def test_if_nobody_differs_weights_are_in_proportion_to_one_over_the_variance(m, kind):
    samples, s = 10 + 90 * rising(m).flip(0), 0.3 * KINDS[kind](rising(m))
    v = 2 / samples + s
    a, b = orthogonal_halves(v)
    signal, noise, _ = signal_and_noise(a, b, samples, 4 * s)
    torch.testing.assert_close(noise, v)
    torch.testing.assert_close(signal, torch.zeros(m, m, dtype=torch.float64))
    xi = collaboration(a, b, torch.zeros(1, 2 * m), samples, torch.full((m,), 0.3), 4 * s).xi
    torch.testing.assert_close(xi, (1 / v / (1 / v).sum()).expand(m, m))


def test_privacys_noise_alone_gives_its_own_weights_whatever_the_sample_counts():
    s = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    a, b = orthogonal_halves(s)
    xi = collaboration(a, b, torch.zeros(1, 6), torch.tensor([9.0, 70.0, 20.0]), torch.ones(3), 4 * s).xi
    torch.testing.assert_close(xi, (1 / s / (1 / s).sum()).expand(3, 3), rtol=1e-6, atol=0)


def test_a_protected_client_is_one_of_fewer_samples():
    """The program sees v alone: n samples and noise s are as n / (1 + n s / c) samples without noise."""
    a, b, _, samples, s = gaussian(8, 300, 0, "groups", "uneven", c=20)
    _, noise, _ = signal_and_noise(a, b, samples, 4 * s)
    level = ((noise - s) * samples)[0]
    fewer = samples / (1 + samples * s / level)
    torch.testing.assert_close(noise, level / fewer)
    assert (noise[1:] > noise[0]).all()


def gaussian(m: int, d: int, seed: int, differ: str, kind: str, c: float = 2.0):
    """Return two half models of each client, its theta, its samples and the variance s of privacy's noise."""
    g = torch.Generator().manual_seed(seed)
    normal = {"generator": g, "dtype": torch.float64}
    centres = {"alike": 0.0, "groups": 0.4, "different": 0.4}[differ] * torch.randn(m, d, **normal)
    theta = centres[torch.arange(m) % 3] if differ == "groups" else centres
    samples, s = 50 + 100 * rising(m).flip(0), d * 0.2 * KINDS[kind](rising(m))
    scale = (2 * c / samples + 2 * s / d).sqrt()[:, None]
    a, b = (theta + scale * torch.randn(m, d, **normal) for _ in range(2))
    return a, b, theta, samples, s


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("differ", ["alike", "groups", "different"])
@pytest.mark.parametrize("m", [2, 6, 20, pytest.param(50, marks=pytest.mark.many)])
@pytest.mark.many
def test_on_gaussian_clients_the_error_is_below_that_of_weights_that_do_not_know(m, differ, kind):
    d, c, known, unknown, best = 300, 2.0, [], [], []
    for seed in range(5):
        a, b, theta, samples, s = gaussian(m, d, seed, differ, kind, c)
        centred, v = theta - theta.mean(0), d * c / samples + s
        truth = centred @ centred.T
        for found, private in ((known, 4 * s), (unknown, 0.0)):
            signal, noise, _ = signal_and_noise(a, b, samples, private)
            found.append(expected_error(least_error_weights(signal, noise), truth, v))
        best.append(expected_error(least_error_weights(truth, v), truth, v))
    known, unknown, best = (torch.stack(each).mean(0) for each in (known, unknown, best))
    assert known.mean() < unknown.mean()
    half = slice(0, (m + 1) // 2)  # the others are nearly all noise, and can't know well whom they are like
    assert known[half].mean() < 1.45 * best[half].mean()


def test_the_noisiest_is_heard_little_and_listens_much():
    a, b, _, samples, s = gaussian(9, 300, 0, "groups", "one")
    xi = collaboration(a, b, torch.zeros(1, 300), samples, torch.ones(9), 4 * s).xi
    assert xi[:8, 8].max() < 0.02
    assert xi[8, 8] < 0.05
    friends = [2, 5]
    assert xi[8, friends].sum() > 0.6


def test_order_and_scale_do_not_matter():
    a, b, _, samples, s = gaussian(7, 200, 1, "groups", "uneven")
    start, bias_weight = torch.zeros(1, 200), torch.full((7,), 0.3)
    xi = collaboration(a, b, start, samples, bias_weight, 4 * s).xi
    order = torch.randperm(7, generator=torch.Generator().manual_seed(0))
    moved = collaboration(a[order], b[order], start, samples[order], bias_weight, 4 * s[order]).xi
    torch.testing.assert_close(moved, xi[order][:, order], rtol=0, atol=1e-8)
    larger = collaboration(1e3 * a, 1e3 * b, start, samples, bias_weight, 4e6 * s).xi
    torch.testing.assert_close(larger, xi, rtol=0, atol=1e-8)


def test_no_noise_changes_nothing_bit_for_bit():
    a, b, _, samples, _ = gaussian(7, 200, 1, "groups", "uneven")
    start, bias_weight, none = torch.zeros(1, 200), torch.full((7,), 0.3), torch.zeros(7, dtype=torch.float64)
    without, of_none = (collaboration(a, b, start, samples, bias_weight, given) for given in (None, none))
    assert torch.equal(without.xi, of_none.xi)
    assert all(torch.equal(without.facts[name], of_none.facts[name]) for name in without.facts)


@pytest.mark.parametrize("claim", [1e3, 1e12, 1e300])
def test_whoever_claims_much_noise_is_heard_less_and_harms_nobody(claim):
    a, b, _, samples, s = gaussian(6, 200, 0, "alike", "equal")
    start, bias_weight = torch.zeros(1, 200), torch.full((6,), 0.3)
    told = 4 * s
    told[2] = claim
    honest, lied = (collaboration(a, b, start, samples, bias_weight, each).xi for each in (4 * s, told))
    assert (lied[:, 2] <= honest[:, 2] + 1e-9).all()
    assert lied.isfinite().all()
    torch.testing.assert_close(lied, honest, rtol=0, atol=0.05)


# -- far out, and opposed ------------------------------------------------------------------------------------------


def test_a_client_is_not_far_out_for_privacys_noise_alone():
    g = torch.Generator().manual_seed(0)
    way = torch.randn(1, 4000, generator=g, dtype=torch.float64)
    sigma = torch.tensor([0.0, 0.0, 0.0, 0.0, 30.0], dtype=torch.float64)[:, None]
    a, b = (way + sigma * torch.randn(5, 4000, generator=g, dtype=torch.float64) for _ in range(2))
    start, samples = torch.zeros(1, 4000), torch.full((5,), 10.0)
    assert far_out(a, b, start, samples)[4] > FAR
    known = far_out(a, b, start, samples, 2 * 4000 * sigma[:, 0].square())
    assert known[4] < FAR
    assert known[:4].tolist() == pytest.approx([1] * 4, rel=0.01)


def test_a_poisoned_client_can_not_hide_behind_noise():
    """Its halves agree on what is wrong, so that this is no noise; if they don't, it is heard as little as noise."""
    g = torch.Generator().manual_seed(0)
    a, b = (torch.ones(1, 200) + 0.1 * torch.randn(6, 200, generator=g) for _ in range(2))
    start, samples, told = torch.zeros(1, 200), torch.full((6,), 10.0), torch.zeros(6)
    told[3] = 1e9
    together, apart = -1000 * torch.ones(200), 1000 * torch.randn(2, 200, generator=g)
    for one, other in ((together, together), (apart[0], apart[1])):
        a[3], b[3] = one, other
        found = collaboration(a, b, start, samples, torch.full((6,), 0.3), told)
        assert found.xi[[0, 1, 2, 4, 5], 3].max() < 1e-5
        assert (found.by_client["far"][3] > FAR) == (one is other)


@pytest.mark.parametrize("noisy", [(0,), (0, 1, 2, 3)])
def test_opponents_are_found_beside_clients_that_are_all_noise(noisy):
    g = torch.Generator().manual_seed(0)
    signs = torch.tensor([1.0, -1.0] * 5, dtype=torch.float64)[:, None]
    sigma = torch.full((10, 1), 0.3, dtype=torch.float64)
    sigma[list(noisy)] = 30.0
    way = torch.ones(1, 1000, dtype=torch.float64)
    a, b = (signs * way + sigma * torch.randn(10, 1000, generator=g, dtype=torch.float64) for _ in range(2))
    clean = torch.tensor([i for i in range(10) if i not in noisy])
    across = signs != signs.T
    found = opposed(a, b, torch.zeros(1, 1000), (0.09 / sigma.square())[:, 0])
    assert torch.equal(found[clean][:, clean], across[clean][:, clean])


# -- FedAMP and HeurFedAMP -----------------------------------------------------------------------------------------


def models(m: int, seed: int, differ: str, kind: str, d: int = 300) -> tuple[Tensor, Tensor, Tensor]:
    """Return models with privacy's noise, theta, and s `(m, 1)`."""
    g = torch.Generator().manual_seed(seed)
    normal = {"generator": g, "dtype": torch.float64}
    centres = {"alike": 0.0, "groups": 1.0, "different": 1.0}[differ] * torch.randn(m, d, **normal)
    theta = torch.ones(1, d) + (centres[torch.arange(m) % 3] if differ == "groups" else centres)
    s = d * 0.3 * KINDS[kind](rising(m))[:, None]
    return theta + (s / d).sqrt() * torch.randn(m, d, **normal), theta, s


def test_what_is_left_of_a_distance_is_that_of_the_listeners_theta_to_the_speakers_model():
    """E|w_i - w_j|^2 - s_i = |theta_i - theta_j|^2 + s_j, and |w_i|^2 - s_i = |theta_i|^2 for lengths."""
    w, theta, s = models(6, 0, "groups", "uneven", d=200_000)
    measured, expected = squared_distances(w), squared_distances(theta) + s.T
    off = ~torch.eye(6, dtype=torch.bool)
    assert ((measured - s - expected).abs() < 0.02 * measured)[off].all()
    ratio = w.norm(dim=1, keepdim=True) / theta.norm(dim=1, keepdim=True)
    torch.testing.assert_close(noise_in_length(w, s), ratio, rtol=0.01, atol=0)


METHODS = [
    *(FedAMP(sigma=word) for word in ("median", "local", "spread")),
    FedAMP(form="gradient"),
    FedAMP(sigma=300.0),
    HeurFedAMP(),
    HeurFedAMP(sigma="local"),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_weights_under_noise_do_not_depend_on_the_order_and_are_weights(method):
    w, _, s = models(7, 2, "groups", "uneven")
    xi, _ = method.collaboration_weights(w, s, 1e4)
    assert (xi >= 0).all()
    torch.testing.assert_close(xi.sum(1), torch.ones(7, dtype=torch.float64))
    order = torch.randperm(7, generator=torch.Generator().manual_seed(0))
    moved, _ = method.collaboration_weights(w[order], s[order], 1e4)
    torch.testing.assert_close(moved, xi[order][:, order], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("differ", ["alike", "groups", "different"])
@pytest.mark.parametrize("method", [FedAMP(), FedAMP(sigma="local"), HeurFedAMP()], ids=str)
def test_cloud_models_are_no_further_from_the_truth_than_those_of_weights_that_do_not_know(method, differ, kind):
    known, unknown = 0.0, 0.0
    for m in (3, 10, 30):
        for seed in range(3):
            w, theta, s = models(m, seed, differ, kind)
            xi, _ = method.collaboration_weights(w, s, 1e4)
            plain, _ = method.collaboration_weights(w, torch.zeros_like(s), 1e4)
            known, unknown = (
                total + float((each @ w - theta).square().sum(1).mean())
                for total, each in ((known, xi), (unknown, plain))
            )
    assert known < 1.01 * unknown
    if differ == "groups":
        assert known < 0.99 * unknown


def test_a_client_that_claims_noise_is_not_heard_more():
    """It changes its own row alone, but for the scale, which is a median."""
    w, _, s = models(9, 0, "groups", "equal")
    told = s.clone()
    told[4] = 1e9
    for method in (FedAMP(sigma=300.0), HeurFedAMP(sigma=3.0)):
        honest, lied = (method.collaboration_weights(w, each, 1e4)[0] for each in (s, told))
        others = torch.arange(9) != 4
        torch.testing.assert_close(lied[others], honest[others], rtol=0, atol=1e-12)
    honest, lied = (FedAMP().collaboration_weights(w, each, 1e4)[0] for each in (s, told))
    assert (lied[others, 4] < honest[others, 4] + 0.02).all()


def test_a_row_that_is_all_noise_hears_everyone_alike():
    w, _, s = models(5, 0, "alike", "equal")
    s[1] = 1e9
    for method in (FedAMP(), HeurFedAMP()):
        xi, _ = method.collaboration_weights(w, s, 1e4)
        torch.testing.assert_close(xi[1], torch.full((5,), 0.2, dtype=torch.float64))
