"""Who listens to whom: collaboration weights from distances or cosines.

Symbols: xi `(m, m)` the collaboration weights, each row of which sums to 1; xi_ii the self weights; alpha the server's
step. Source: Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021 (the paper).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedamp import checks
from fedamp.errors import UserError

SelfWeight = float | tuple[float, ...] | str
"""A number for all clients, a number for each, or `uniform` (1/m)."""


def check_self_weight(value: object) -> SelfWeight:
    """Return a self weight, a vector as a tuple; raise if it is not one."""
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
        raise UserError("self_weight 'oracle' needs true groups, and this setting has none; use 'uniform' or a number")
    groups = list(groups)
    return tuple(1 / groups.count(group) for group in groups)


def self_weights(value: SelfWeight, num_clients: int) -> Tensor:
    """Return xi_ii for each client, `(m,)` in float64."""
    if isinstance(value, tuple) and len(value) != num_clients:
        raise UserError(f"self_weight has {len(value)} entries for {num_clients} clients; expected one for each")
    given = 1 / num_clients if value == "uniform" else value
    return torch.as_tensor(given, dtype=torch.float64).expand(num_clients)


def uniform_weights(num_clients: int) -> Tensor:
    """Return xi in which everyone listens equally to all, itself included."""
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


def on_simplex(rows: Tensor) -> Tensor:
    """Return the nearest points of the simplex, row by row: max(row - level, 0), with the level at which it sums to 1.

    An entry of -inf gets no weight.
    """
    ordered = rows.sort(1, descending=True).values
    over = (ordered.cumsum(1) - 1) / torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=rows.device)
    last = (ordered > over).sum(1, keepdim=True) - 1
    return (rows - over.gather(1, last)).clamp(min=0)


def rest_to_itself(xi: Tensor) -> Tensor:
    """Return weights of which some clients' columns were taken out, with what is missing to 1 given to each client."""
    return xi + (1 - xi.sum(1)).diag()


def listening(xi: Tensor) -> dict[str, Tensor]:
    """Return what is shown of collaboration weights `(m, m)`: they themselves, self weights and effective clients."""
    return {"xi": xi, "self_weight": xi.diagonal(), "effective_clients": effective_clients(xi)}
