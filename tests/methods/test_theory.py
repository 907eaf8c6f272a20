"""Eq. 6 in closed form, and Theorem 1 on convex problems."""

import math

import pytest
import torch

from fedamp.methods import FedAMP, Separate
from fedamp.methods.attention import TamedSquareRoot
from fedamp.rows import Rows
from fedamp.runs.round import play_round
from paper.exact import ExactLocal


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("start", ["u", "w"])
@pytest.mark.parametrize(("lam", "alpha"), [(1.0, 2.0), (3.0, 0.1), (0.0, 1.0)])
def test_eq6_for_a_quadratic_loss(lam, alpha, start):
    """F = |w - b|^2 / 2: argmin F + rho/2 |w - u|^2 = (b + rho u) / (1 + rho), rho = lam / alpha."""
    b, w, rho = randn(5, 4, seed=1), Rows.of(randn(5, 4)), lam / alpha
    method = FedAMP(lam=lam, alpha=alpha, start=start)
    everyone = torch.ones(5, dtype=torch.bool)
    played = play_round(
        method, method.server_init(w), method.client_init(w), 1, lambda who: ExactLocal(lambda p: p - b), everyone
    )
    u = played.models["received"].params
    torch.testing.assert_close(played.models["own"].params, (b + rho * u) / (1 + rho), rtol=0, atol=1e-12)


def test_separate_ends_at_its_own_optimum():
    b, w = randn(5, 4, seed=1), Rows.of(randn(5, 4))
    state, _ = Separate().client_update(Separate().client_init(w), {}, ExactLocal(lambda p: p - b))
    torch.testing.assert_close(state.rows["w"].params, b, rtol=0, atol=1e-12)


class Convex:
    """F_i convex, in H = F + (lam/2) A with A the tamed square root: Eq. 5 and Eq. 6 minimise this H.

    Eq. 5 as printed steps by alpha/2 along A's gradient, so the theorem holds with A/2 in the place of A.
    """

    def __init__(self, kind: str, lam: float, seed: int = 0, m: int = 5, d: int = 3) -> None:
        self.b = 2 * randn(m, d, seed=seed)
        self.b[: m // 2] += 3.0  # two groups
        self.lam, self.m, self.kind = lam, m, kind
        self.attention = TamedSquareRoot(0.7)
        self.w0 = randn(m, d, seed=seed + 1)

    def loss(self, w: torch.Tensor) -> torch.Tensor:
        if self.kind == "quadratic":
            return ((w - self.b) ** 2).sum() / 2
        return (torch.cosh((w - self.b).clamp(-30, 30)).log()).sum() + 0.05 * (w**2).sum()

    def gradient(self, w: torch.Tensor) -> torch.Tensor:
        if self.kind == "quadratic":
            return w - self.b
        return torch.tanh(w - self.b) + 0.1 * w

    def pull(self, w: torch.Tensor) -> torch.Tensor:
        """(1/2) A(W)."""
        pairs = [(i, j) for i in range(self.m) for j in range(i)]
        return sum(self.attention(((w[i] - w[j]) ** 2).sum()) for i, j in pairs) / 2

    def h(self, w: torch.Tensor, factor: float = 1.0) -> float:
        return float(self.loss(w) + factor * self.lam * self.pull(w))

    def optimum(self) -> torch.Tensor:
        w = self.w0.clone().requires_grad_()
        lbfgs = torch.optim.LBFGS(
            [w], lr=1, max_iter=5000, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
        )

        def closure() -> torch.Tensor:
            lbfgs.zero_grad()
            value = self.loss(w) + self.lam * self.pull(w)
            value.backward()
            return value

        lbfgs.step(closure)
        assert w.grad.abs().max() < 1e-6
        return w.detach()

    def play(self, rounds: int, alpha: float) -> list[torch.Tensor]:
        method = FedAMP(
            form="gradient", attention="tamed-square-root", sigma=0.7, alpha=alpha, lam=self.lam, strict=True
        )
        w = Rows.of(self.w0)
        server, clients = method.server_init(w), method.client_init(w)
        everyone = torch.ones(self.m, dtype=torch.bool)
        trajectory = [self.w0]
        for k in range(1, rounds + 1):
            played = play_round(method, server, clients, k, lambda who: ExactLocal(self.gradient), everyone)
            server, clients = played.server, played.clients
            assert played.diagnostics["alpha"] == alpha  # not lowered
            trajectory.append(played.models["own"].params)
        return trajectory


@pytest.mark.parametrize("kind", ["quadratic", "log-cosh"])
@pytest.mark.parametrize("lam", [0.3, 1.0])
@pytest.mark.parametrize("seed", [0, 7])
def test_theorem_1(kind, lam, seed):
    """min_k H(W^k) - H* <= (|W^0 - W*|^2 + 5 B^2) / sqrt(K) at alpha = lam / sqrt(K), and it goes to 0."""
    problem = Convex(kind, lam, seed)
    best = problem.optimum()
    gaps = []
    for rounds in (9, 25, 100, 400):
        trajectory = problem.play(rounds, alpha=lam / math.sqrt(rounds))
        free = [w.clone().requires_grad_() for w in trajectory]
        pulls = [torch.autograd.grad(problem.pull(w), w)[0].norm() for w in free]
        bound_b = max(max(float(problem.gradient(w).norm()) for w in trajectory), lam * float(max(pulls)))
        bound = (float(((problem.w0 - best) ** 2).sum()) + 5 * bound_b**2) / math.sqrt(rounds)
        gap = min(problem.h(w) for w in trajectory) - problem.h(best)
        assert -1e-9 <= gap <= bound
        gaps.append(gap)
    assert gaps[-1] < 1e-3 * gaps[0] or gaps[-1] < 1e-5


@pytest.mark.parametrize("kind", ["quadratic", "log-cosh"])
def test_fixed_point_minimises_f_plus_half_lambda_a(kind):
    """At the optimum of H one round changes nothing, whatever alpha; at that of F + lam A it does."""
    problem = Convex(kind, lam=0.5)
    best = problem.optimum()
    problem.w0 = best
    for alpha in (0.01, 0.1):
        moved = problem.play(1, alpha)[-1] - best
        assert moved.abs().max() < 1e-7
    doubled = Convex(kind, lam=0.5)
    doubled.lam = 1.0
    problem.w0 = doubled.optimum()
    assert (problem.play(1, 0.1)[-1] - problem.w0).abs().max() > 1e-3
