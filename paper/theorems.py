"""Theorems 1 and 2 of the paper, measured: `python -m paper.theorems` writes results/theorems.json (a minute on a CPU).

Clients solve Eq. 6 exactly, as the theorems assume. Eq. 5 as printed steps by alpha/2 along A's gradient, so that what
Eq. 5 and Eq. 6 minimise is H = F + (lambda/2) A, and H stands where the theorems write G.

Theorem 1: F convex (log-cosh), A the tamed square root, the only one of the four that makes A(W) convex.
Theorem 2: F smooth and not convex (log(1 + t^2)), A the negative exponential.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedamp.methods import FedAMP
from fedamp.methods.attention import make_attention
from fedamp.rows import Rows
from fedamp.runs.round import play_round
from paper import results
from paper.exact import ExactLocal

M, D, LAM = 6, 4, 1.0
LENGTHS = (4, 9, 16, 36, 64, 144, 256, 576, 1024, 2304)
"""Numbers of rounds K; alpha = lambda / sqrt(K) in all of them."""
DIMINISHING = 4000
"""Rounds with alpha_k = lambda / (2 k^0.6): the sum is infinite, that of the squares is not."""


@dataclass(frozen=True)
class Problem:
    """F is a sum over the coordinates of w - b; H = F + (lam/2) A."""

    name: str
    attention: str
    sigma: float
    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    lipschitz: float  # of F's and of A/2's gradient: the larger one
    b: Tensor
    w0: Tensor

    def loss(self, w: Tensor) -> Tensor:
        """Return F."""
        return self.value(w - self.b).sum()

    def pull(self, w: Tensor) -> Tensor:
        """Return A(W) / 2."""
        distances = ((w[:, None] - w[None]) ** 2).sum(-1)
        rows, columns = torch.triu_indices(M, M, 1)
        return make_attention(self.attention, self.sigma, 3.7)(distances[rows, columns]).sum() / 2

    def h(self, w: Tensor) -> Tensor:
        """Return H."""
        return self.loss(w) + LAM * self.pull(w)

    def gradient(self, w: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the gradient of F, A/2 or H."""
        free = w.clone().requires_grad_()
        (slope,) = torch.autograd.grad(of(free), free)
        return slope

    def lowest(self, starts: int = 20) -> Tensor:
        """Return the lowest point that is found from many starts; for a convex H the lowest there is."""
        best = self.w0
        for seed in range(starts):
            stream = torch.Generator().manual_seed(100 + seed)
            w = (self.b + torch.randn(M, D, dtype=torch.float64, generator=stream)).requires_grad_()
            search = torch.optim.LBFGS(
                [w], max_iter=2000, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
            )

            def closure(w: Tensor = w, search: torch.optim.LBFGS = search) -> Tensor:
                search.zero_grad()
                value = self.h(w)
                value.backward()
                return value

            search.step(closure)
            best = w.detach() if self.h(w.detach()) < self.h(best) else best
        return best

    def play(self, rounds: int, alpha: Callable[[int], float]) -> list[Tensor]:
        """Return W^0 to W^K."""
        w = Rows.of(self.w0)
        trajectory, everyone = [self.w0], torch.ones(M, dtype=torch.bool)
        for k in range(1, rounds + 1):
            method = FedAMP(
                form="gradient", attention=self.attention, sigma=self.sigma, alpha=alpha(k), lam=LAM, strict=True
            )
            played = play_round(
                method,
                method.server_init(w),
                method.client_init(w),
                k,
                lambda who: ExactLocal(lambda point: self.slope(point - self.b)),
                everyone,
            )
            w = played.models["own"]
            trajectory.append(w.params)
        return trajectory


def problems() -> tuple[Problem, Problem]:
    """Return the convex and the non-convex problem: two groups of clients with different optima."""
    stream = torch.Generator().manual_seed(0)
    b = torch.randn(M, D, dtype=torch.float64, generator=stream)
    b[: M // 2] += 3.0
    w0 = torch.randn(M, D, dtype=torch.float64, generator=stream)

    def log_cosh(t: Tensor) -> Tensor:
        return t.abs() + torch.log1p(torch.exp(-2 * t.abs())) - math.log(2)

    # The Hessian of A/2 is at most A'(0) times the complete graph's Laplacian, whose largest eigenvalue is M: M / (2
    # sigma) for the tamed square root, M / sigma for the negative exponential. Of F it is 1 and 2.
    convex = Problem("convex", "tamed-square-root", 2.0, log_cosh, torch.tanh, max(1.0, M / 4), b, w0)
    smooth = Problem(
        "smooth", "negative-exponential", 12.0, lambda t: torch.log1p(t**2), lambda t: 2 * t / (1 + t**2), 2.0, b, w0
    )
    return convex, smooth


def measure(problem: Problem) -> dict[str, Any]:
    """Return the curves of one theorem, with its bound at each K."""
    best = problem.lowest()
    return {
        "attention": problem.attention,
        "sigma": problem.sigma,
        "clients": M,
        "dimensions": D,
        "lambda": LAM,
        "lowest": float(problem.h(best)),
        "lines": [_beside_bounds(problem, best, rounds) for rounds in LENGTHS],
        "diminishing": _diminishing(problem, best),
    }


def _beside_bounds(problem: Problem, best: Tensor, rounds: int) -> dict[str, float]:
    """Return what K rounds with alpha = lambda / sqrt(K) reach, beside the bounds of both theorems."""
    trajectory = problem.play(rounds, lambda k: LAM / math.sqrt(rounds))
    norms = [float(problem.gradient(w, problem.loss).norm()) for w in trajectory]
    pulls = [LAM * float(problem.gradient(w, problem.pull).norm()) for w in trajectory]
    b, lowest = max(norms + pulls), float(problem.h(best))
    start = float(problem.h(problem.w0)) - lowest
    return {
        "K": rounds,
        "gap": min(float(problem.h(w)) for w in trajectory) - lowest,
        "gap_bound": (float(((problem.w0 - best) ** 2).sum()) + 5 * b**2) / math.sqrt(rounds),
        "gradient": min(float(problem.gradient(w, problem.h).norm() ** 2) for w in trajectory),
        "gradient_bound": 18 * (start + 20 * problem.lipschitz * b**2) / math.sqrt(rounds),
        "B": b,
    }


def _diminishing(problem: Problem, best: Tensor) -> list[dict[str, float]]:
    """Return gap and squared gradient at some rounds of a run with diminishing steps."""
    trajectory = problem.play(DIMINISHING, lambda k: LAM / (2 * k**0.6))
    kept = sorted({round(1.3**i) for i in range(60)} & set(range(1, DIMINISHING + 1)) | {DIMINISHING})
    return [
        {
            "k": k,
            "gap": float(problem.h(trajectory[k])) - float(problem.h(best)),
            "gradient": float(problem.gradient(trajectory[k], problem.h).norm() ** 2),
        }
        for k in kept
    ]


def main() -> None:
    """Measure both theorems, write what was seen, and print it."""
    path = results.theorems_path()
    path.parent.mkdir(exist_ok=True)
    measured = {problem.name: measure(problem) for problem in problems()}
    written = {"command": "python -m paper.theorems", "torch": torch.__version__, **measured}
    path.write_text(json.dumps(_short(written), indent=1) + "\n")
    for name, curves in measured.items():
        for line in curves["lines"]:
            print(name, {key: f"{value:.3g}" for key, value in line.items()})


def _short(value: Any) -> Any:
    """Return numbers with as many digits as anybody reads."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(entry) for key, entry in value.items()}
    return [_short(entry) for entry in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
