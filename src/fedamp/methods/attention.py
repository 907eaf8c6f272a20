"""Who listens to whom: attention-inducing functions, distances and cosines, collaboration weights.

Symbols: A and A' of the squared distance t = |w_i - w_j|^2; sigma, theta their parameters; xi `(m, m)` the
collaboration weights, each row of which sums to 1; alpha the server's step. Source: Huang et al.,
"Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021 (the paper).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedamp import checks
from fedamp.errors import UserError
from fedamp.rows import column_blocks


@dataclass(frozen=True)
class Attention(ABC):
    """A function A that induces attention: increasing, concave, A(0) = 0, finite A'(0+) (Definition 1)."""

    sigma: float = 1.0

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
        """Return A'(t) of squared distances, elementwise: how much two models at this distance help."""


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

    The only one of the four for which A(|x|^2) is convex, which Theorem 1 asks for. Its sigma is a distance,
    not a squared one.
    """

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
    """A function that is constant, and so deaf, beyond t = theta sigma."""

    theta: float = 3.7

    def __post_init__(self) -> None:
        super().__post_init__()
        if not checks.is_number(self.theta) or not 2 < self.theta < float("inf"):
            raise UserError(f"theta is {self.theta!r}; expected a finite number over 2")


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
    """Return an attention function by its name; theta is for MCP and SCAD alone."""
    checks.one_of("attention", name, ATTENTION)
    kind = ATTENTION[name]
    return kind(sigma, theta) if issubclass(kind, _Clipped) else kind(sigma)


def _gram(rows: Tensor, origin: Tensor | None = None) -> Tensor:
    """Return the inner products of rows seen from `origin`, `(m, m)`, summed in float64 block by block."""
    total = torch.zeros((len(rows), len(rows)), dtype=torch.float64, device=rows.device)
    for block in column_blocks(rows):
        part = rows[:, block].double()
        if origin is not None:
            part = part - origin[block].double()
        total.addmm_(part, part.T)
    return total


def squared_distances(rows: Tensor) -> Tensor:
    """Return |w_i - w_j|^2 for all pairs of rows, `(m, m)` in float64, exactly 0 where all rows are equal.

    Models are nearly equal at the start, where |a|^2 + |b|^2 - 2ab loses every digit in float32. Here rows
    are seen from one of them, so that what they share cancels before it is squared: the one of median length, since
    seen from a model that has gone astray all others would be the same.
    """
    middle = (len(rows) - 1) // 2
    by_length = rows.norm(dim=1).argsort(stable=True)  # a GPU's median is not deterministic
    gram = _gram(rows, origin=rows.index_select(0, by_length[middle : middle + 1])[0]) if len(rows) else _gram(rows)
    norms = gram.diagonal()
    distances = (norms[:, None] + norms - gram - gram.T).clamp(min=0)
    return distances.fill_diagonal_(0)


def cosines(rows: Tensor) -> Tensor:
    """Return cos(w_i, w_j) for all pairs of rows, `(m, m)` in float64; 0 where a row is zero."""
    gram = _gram(rows)
    norms = gram.diagonal().sqrt()
    scale = torch.where(norms > 0, 1 / norms, 0)
    return (gram * scale[:, None] * scale).clamp(-1, 1)


def median_distance(distances: Tensor) -> float:
    """Return the median over pairs of clients of distances `(m, m)`; 0 where all models are equal.

    Where more than half of the pairs are equal it is the median of the others: a scale of 0 says nothing.
    """
    above = torch.triu_indices(len(distances), len(distances), offset=1, device=distances.device)
    pairs = distances[above[0], above[1]].sort().values
    if len(pairs) and pairs[len(pairs) // 2] == 0:
        pairs = pairs[pairs > 0]
    if not len(pairs):
        return 0.0
    return float((pairs[(len(pairs) - 1) // 2] + pairs[len(pairs) // 2]) / 2)


SCALES = ("median", "local", "spread")
"""Where sigma is a word: the median over all pairs of clients; over the pairs that a client is in, for each; or how
much these differ."""

ASTRAY = 10
"""A distance enters the spread up to median + ASTRAY (median - nearest): beyond that a model has gone astray."""


def scale(distances: Tensor, word: str) -> Tensor:
    """Return how far apart models are, for each client `(m, 1)`, from distances `(m, m)`.

    With "local" it is the (lower) median of a client's own distances: one whose model lies far out, for it has more
    data and takes more steps, then listens as widely as the others do. Zelnik-Manor and Perona (2004) call this local
    scaling. With "spread" it is their standard deviation: a softmax sees differences alone, and models of a large net
    may all lie nearly equally far. A client among its equals has no scale of its own but rounding: it takes everyone's.
    """
    overall = median_distance(distances)
    if word == "median":
        return distances.new_full((len(distances), 1), overall)
    others = distances + torch.diag(distances.new_full((len(distances),), torch.nan))
    ordered = others.sort(1).values  # nan, the distance to itself, comes last; a GPU's median is not deterministic
    own = _lower_median(ordered).nan_to_num(0.0) if word == "local" else _spread(ordered)
    return torch.where(own > 1e-9 * overall, own, overall)


def _lower_median(ordered: Tensor, least: int = 0) -> Tensor:
    """Return each sorted row's lower median `(m, 1)`, its last entry left out; at least the value at place `least`."""
    place = max(least, (len(ordered) - 2) // 2)
    return ordered[:, min(place, len(ordered) - 1), None]


def _spread(ordered: Tensor) -> Tensor:
    """Return each sorted row's standard deviation `(m, 1)`, with nan left out and what has gone astray cut off."""
    median = _lower_median(ordered, least=1)  # the nearest itself is no measure of what lies beyond it
    kept = ordered.clamp(max=median + ASTRAY * (median - ordered[:, :1]))
    return (kept - kept.nanmean(1, keepdim=True)).square().nanmean(1, keepdim=True).sqrt().nan_to_num(0.0)


SelfWeight = float | tuple[float, ...] | str
"""A number for all clients, a number for each, or `uniform` (1/m)."""


def check_self_weight(value: object) -> SelfWeight:
    """Return a self weight with a vector made a tuple; raise where it is none."""
    value = checks.plain(value)
    if value == "oracle":
        raise UserError("self_weight 'oracle' needs the setting's true groups; pass oracle_self_weight(groups)")
    if isinstance(value, str):
        checks.one_of("self_weight", value, ["uniform"])
        return value
    if isinstance(value, int | float):
        checks.share("self_weight", value)
        return value
    try:
        vector = tuple(float(v) for v in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        expected = "a number from 0 to 1, one for each client, or 'uniform'"
        raise UserError(f"self_weight is {value!r}; expected {expected}") from None
    for client, entry in enumerate(vector):
        checks.share(f"self_weight of client {client}", entry)
    return vector


def oracle_self_weight(groups: Sequence[int] | None) -> tuple[float, ...]:
    """Return 1/(N_i + 1), N_i the number of other clients with client i's data distribution.

    The paper's choice, from a setting's true groups: knowledge that no deployment has.
    """
    if groups is None:
        raise UserError("self_weight 'oracle' needs true groups, and this setting has none; take 'uniform' or a number")
    groups = list(groups)
    return tuple(1 / groups.count(group) for group in groups)


def self_weights(value: SelfWeight, num_clients: int) -> Tensor:
    """Return xi_ii for each client, `(m,)` in float64."""
    if isinstance(value, tuple) and len(value) != num_clients:
        raise UserError(f"self_weight has {len(value)} entries for {num_clients} clients; expected one for each")
    given = 1 / num_clients if value == "uniform" else value
    return torch.as_tensor(given, dtype=torch.float64).expand(num_clients)


def uniform_weights(num_clients: int) -> Tensor:
    """Return xi in which everyone listens to everyone alike, itself included."""
    return torch.full((num_clients, num_clients), 1 / num_clients, dtype=torch.float64)


def gradient_weights(similarity: Tensor, alpha: float) -> tuple[Tensor, float]:
    """Return xi of Eq. 5 and the alpha used: xi_ij = alpha A'_ij for j != i, and xi_ii the rest.

    `similarity` `(m, m)` holds A'(|w_i - w_j|^2). An alpha that would make a self weight negative is lowered,
    to one value for all clients: the largest at which every row is a convex combination.
    """
    others = similarity.clone().fill_diagonal_(0)
    loudest = float(others.sum(1).max()) if len(others) else 0.0
    used = min(alpha, 1 / loudest) if loudest > 0 else alpha
    xi = used * others
    # Rounding alone can leave -1e-16 where alpha was lowered.
    xi.diagonal().copy_((1 - xi.sum(1)).clamp(min=0))
    return xi, used


def softmax_weights(scores: Tensor, self_weight: Tensor) -> Tensor:
    """Return xi in which client i keeps `self_weight[i]` and a softmax of its scores shares out the rest.

    xi_ij = (1 - xi_ii) exp(s_ij) / sum_{h != i} exp(s_ih) for j != i (Eq. 9 with s = sigma cos). A single
    client has nobody to listen to: its self weight is 1.
    """
    if len(scores) == 1:
        return torch.ones_like(scores)
    self_weight = self_weight.to(scores)
    alone = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    others = torch.softmax(scores.masked_fill(alone, -torch.inf), dim=1)
    xi = (1 - self_weight[:, None]) * others
    return torch.where(alone, self_weight[:, None], xi)


def effective_clients(xi: Tensor) -> Tensor:
    """Return how many clients each one listens to, itself counted, `(m,)`: 1 / sum_j xi_ij^2.

    1 for a client that hears itself alone, m for a uniform mixture.
    """
    return 1 / (xi**2).sum(1)
