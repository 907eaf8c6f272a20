"""Attention-inducing functions, by name: A and its derivative A'.

Symbols: t = |w_i - w_j|^2, the squared distance between two models; sigma and theta the functions' parameters. Source:
Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021 (the paper), Definition 1.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedamp import checks
from fedamp.errors import UserError
from fedamp.fields import about


@dataclass(frozen=True)
class Attention(ABC):
    """A function A that induces attention: increasing, concave, A(0) = 0, finite A'(0+) (Definition 1)."""

    sigma: float = about(
        1.0,
        "Distance at which attention fades.",
        unit="squared distance between two models",
        range="above 0",
        source="Huang et al. 2021, Definition 1 and the examples after it; tuned there for each data set and setting",
    )

    def __post_init__(self) -> None:
        checks.positive("sigma", self.sigma)

    @classmethod
    def sigma_at(cls, t: float) -> float:
        """Return the sigma whose bend lies at the squared distance t."""
        return t

    @abstractmethod
    def __call__(self, t: Tensor) -> Tensor:
        """Return A(t) of squared distances, elementwise."""

    @abstractmethod
    def derivative(self, t: Tensor) -> Tensor:
        """Return A'(t) of squared distances, elementwise: how much two models at this distance help each other."""


@dataclass(frozen=True)
class NegativeExponential(Attention):
    """A(t) = 1 - exp(-t/sigma): the paper's choice."""

    def __call__(self, t: Tensor) -> Tensor:
        """Return A(t)."""
        return -torch.expm1(-t / self.sigma)

    def derivative(self, t: Tensor) -> Tensor:
        """Return A'(t) = exp(-t/sigma) / sigma."""
        return torch.exp(-t / self.sigma) / self.sigma


@dataclass(frozen=True)
class TamedSquareRoot(Attention):
    """A(t) = t/(2 sigma) up to t = sigma^2, then sqrt(t) - sigma/2: Huber's function of the distance.

    The only one of the four for which A(|x|^2) is convex, which Theorem 1 requires. Its sigma is a distance,
    not a squared one.
    """

    sigma: float = about(
        1.0,
        "Distance from which A is no longer a parabola of the distance but a straight line.",
        unit="distance between two models",
        range="above 0",
        source="Huang et al. 2021, the examples after Definition 1",
    )

    @classmethod
    def sigma_at(cls, t: float) -> float:
        """Return sqrt(t)."""
        return math.sqrt(t)

    def __call__(self, t: Tensor) -> Tensor:
        """Return A(t)."""
        far = t.clamp(min=self.sigma**2).sqrt() - self.sigma / 2
        return torch.where(t <= self.sigma**2, t / (2 * self.sigma), far)

    def derivative(self, t: Tensor) -> Tensor:
        """Return A'(t) = 1 / (2 max(sigma, sqrt(t)))."""
        return 0.5 / t.clamp(min=self.sigma**2).sqrt()


@dataclass(frozen=True)
class _Clipped(Attention):
    """A function that is constant beyond t = theta sigma: from there on a model is not heard at all."""

    theta: float = about(
        3.7,
        "Where attention ends: at a squared distance of theta sigma.",
        range="above 2",
        source="Huang et al. 2021, the examples after Definition 1; 3.7 is what Fan and Li, 2001, use for SCAD",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not checks.is_number(self.theta) or not 2 < self.theta < float("inf"):
            raise UserError(f"theta is {self.theta!r}; expected a finite number above 2")


@dataclass(frozen=True)
class MCP(_Clipped):
    """Minimax concave penalty: A(t) = sigma t - t^2/(2 theta) up to theta sigma, then theta sigma^2/2."""

    def __call__(self, t: Tensor) -> Tensor:
        """Return A(t)."""
        t = t.clamp(max=self.theta * self.sigma)
        return self.sigma * t - t**2 / (2 * self.theta)

    def derivative(self, t: Tensor) -> Tensor:
        """Return A'(t) = max(0, sigma - t/theta)."""
        return (self.sigma - t / self.theta).clamp(min=0)


@dataclass(frozen=True)
class SCAD(_Clipped):
    """Smoothly clipped absolute deviation.

    A(t) = sigma t up to sigma; (-t^2 + 2 theta sigma t - sigma^2) / (2 (theta - 1)) up to theta sigma; then
    (theta + 1) sigma^2 / 2.
    """

    def __call__(self, t: Tensor) -> Tensor:
        """Return A(t)."""
        t = t.clamp(max=self.theta * self.sigma)
        bent = (-(t**2) + 2 * self.theta * self.sigma * t - self.sigma**2) / (2 * (self.theta - 1))
        return torch.where(t <= self.sigma, self.sigma * t, bent)

    def derivative(self, t: Tensor) -> Tensor:
        """Return A'(t) = sigma up to sigma, then max(0, (theta sigma - t) / (theta - 1))."""
        return ((self.theta * self.sigma - t) / (self.theta - 1)).clamp(min=0, max=self.sigma)


ATTENTION: dict[str, type[Attention]] = {
    "negative-exponential": NegativeExponential,
    "tamed-square-root": TamedSquareRoot,
    "mcp": MCP,
    "scad": SCAD,
}


def make_attention(name: str, sigma: float, theta: float) -> Attention:
    """Return an attention function by its name; theta is only for MCP and SCAD."""
    checks.one_of("attention", name, ATTENTION)
    kind = ATTENTION[name]
    return kind(sigma, theta) if issubclass(kind, _Clipped) else kind(sigma)
