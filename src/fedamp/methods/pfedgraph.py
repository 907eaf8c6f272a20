"""pFedGraph: a collaboration graph that weighs how alike clients' updates are against how many samples they have.

    x_i = argmin_x  sum_j d_ij x_j + alpha |x - p|^2   over x >= 0, sum_j x_j = 1,     d_ij = -cos(w_i - w_0, w_j - w_0)
    u_i = sum_j x_ij w_j,      w_i = argmin_w  F_i(w) - lam cos(w, u_i),  trained from u_i

Symbols: w_0 the first model, p_j = n_j/n the shares of the samples, x (here xi) the graph, u the cloud models. The
program's answer is the point of the simplex nearest to p - d_i / (2 alpha). Source: Ye et al., "Personalized Federated
Learning with Inferred Collaboration Graphs", ICML 2023, Eq. 1 and Algorithm 1, and the authors' code
(MediaBrain-SJTU/pFedGraph). There all clients take part, or the participants of a round are mixed with each other
alone; here, as in FedAMP, who is absent stays in the graph with its last model, so that a newcomer finds somebody. Who
has not sent a model yet has no update to compare: it has no weight, and gets FedAvg's mixture. The first round has no
regulariser. That code adds lam cos where Eq. 1 subtracts it (its issue 1), counts cosines above 0.9 as 1, and has a
second script that normalises the models in u_i before the cosine is taken: here it is Eq. 1's sign, the cosine as it
is, and u_i itself. It scores whichever of w_i and u_i does best on validation samples, and we w_i.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.attention import cosines, listening, on_simplex
from fedamp.methods.base import Grad, Local, Method
from fedamp.rows import Message, Rows, State

SHORTEST = 1e-12
"""Length below which a model has no direction."""


def aligned(w: Tensor, grad: Grad, u: Tensor, strength: Tensor) -> Tensor:
    """Return the gradient of F(w) - strength cos(w, u).

    With ^ for a vector of length 1, the cosine's gradient is (u^ - cos w^) / |w|: what of u^ is across w.
    """
    aim, own = normalize(u, dim=1, eps=SHORTEST), normalize(w, dim=1, eps=SHORTEST)
    across = aim - (aim * own).sum(1, keepdim=True) * own
    length = torch.linalg.vector_norm(w, dim=1, keepdim=True).clamp(min=SHORTEST)
    return torch.addcmul(grad(w), -strength / length, across)


def graph(alike: Tensor, shares: Tensor, alpha: float) -> Tensor:
    """Return x `(m, m)` from cosines `(m, m)` and shares of the samples `(m,)`: the nearest points of the simplex."""
    wanted = shares + alike / (2 * alpha)
    # Moved along (1, ..., 1), which changes no nearest point, so that a small alpha leaves no large numbers.
    return on_simplex(wanted - wanted.max(1, keepdim=True).values)


@dataclass(frozen=True)
class PFedGraph(Method):
    """u_i = sum_j x_ij w_j with x_i nearest to p + cos_i / (2 alpha); local training turns towards u_i."""

    group: ClassVar[str] = "collaboration graph"
    when: ClassVar[str] = "Clients differ, also in how much data they have; one number says how far to trust likeness."
    answers: ClassVar[Mapping[str, str]] = {"w": "u"}

    alpha: float = about(
        0.8,
        "How strongly the weights are held to the clients' shares of the samples, which are FedAvg's weights; near 0 a "
        "client listens only to the one most like it, itself.",
        range="above 0",
        source="Ye et al. 2023, Eq. 1; 0.8 is from the authors' code",
    )
    lam: float = about(
        0.01,
        "Strength lambda with which local training keeps the model's direction near its cloud model's, by their "
        "cosine.",
        range="0 or more",
        source="Ye et al. 2023, Eq. 1; 0.01 is from the authors' code",
    )

    def __post_init__(self) -> None:
        checks.positive("alpha", self.alpha)
        checks.not_negative("lam", self.lam)

    def server_init(self, w: Rows) -> State:
        """Keep every client's last model, the model that all updates are seen from, and room for sample counts."""
        none = torch.zeros((len(w), 1), dtype=torch.float64, device=w.params.device)
        return State(len(w), {"w": w, "samples": Rows.of(none)}, shared={"start": w.mean()})

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Infer the graph and mix the cloud models by it; at first everyone has its first model, and no regulariser."""
        w, samples = state.rows["w"], state.rows["samples"].params
        known = samples[:, 0] > 0
        xi = torch.eye(len(w)).to(samples)
        if known.any():
            alike = cosines(w.params, origin=state.shared["start"].params[0]).where(known[:, None], 0.0)
            xi = graph(alike.where(known, -torch.inf), (samples / samples.sum())[:, 0], self.alpha)
        strength = w.params.new_full((len(w), 1), self.lam if known.any() else 0.0)
        return state.replace(pairs={"xi": xi}), {"u": w.mix(xi), "strength": Rows.of(strength)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Store the present clients' models and sample counts."""
        return state.replace({name: state.rows[name].put(present, reply[name]) for name in ("w", "samples")})

    def client_init(self, w: Rows) -> State:
        """Keep the client's model: it is scored, and never trained from."""
        return State(len(w), rows={"w": w})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train from the cloud model, turned towards it."""
        u = message["u"]
        w = local.run(u, aligned, u=u.params, strength=message["strength"].params)
        return state.replace(rows={"w": w}), {"w": w, "samples": Rows.of(local.sizes.to(torch.float64))}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's model and its cloud model."""
        return {"own": state.rows["w"], "received": message["u"]}

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return the graph that the cloud models were mixed by."""
        return {**listening(state.pairs["xi"]), "events": []}
