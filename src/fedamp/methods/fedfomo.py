"""FedFomo: each client gets other clients' models as they are, and takes on what does better on its own samples.

    gain_j = (L_i(w_i) - L_i(w_j)) / |w_j - w_i|,      weight_j = max(gain_j, 0) / sum_h max(gain_h, 0)
    w_i <- w_i + sum_j weight_j (w_j - w_i),  then local training

Symbols: w_i the client's own last model, w_j the M models that it is sent, L_i its loss on samples that it holds out
and never trains on. Whom it is sent says the affinity: P = identity + the sum of all weights that it has reported.
Source: Zhang et al., "Personalized Federated Learning with First Order Model Optimization", ICLR 2021, Eq. 3 and 4 and
Algorithm 1. The paper draws models by P, with a chance epsilon for any other, which fades. A server here has no random
numbers: first come those whom the client has not been sent yet, then the highest affinity, and among equals the nearest
model. So everyone is tried once, and no choice depends on clients' numbers. Who has never replied is not sent to
anyone; who is absent still is, by its last model (the authors send those of the last round only). The authors' code
(NVlabs/FedFomo) compares with the model from before the client's last training, and has its last one among the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.attention import listening, rest_to_itself, squared_distances
from fedamp.methods.base import Local, Method, descent
from fedamp.rows import Message, Rows, State


def gain(own: Tensor, other: Tensor, step: Tensor) -> Tensor:
    """Return by how much another model is better than one's own, for each unit of the way there; 0 if it is not.

    Losses `(n, 1)`, and the step `(n, d)` from the one to the other; an equal model, or a loss that is no number: 0.
    """
    rate = (own - other) / torch.linalg.vector_norm(step, dim=1, keepdim=True, dtype=torch.float64)
    return torch.where((rate > 0) & rate.isfinite(), rate, 0.0)


@dataclass(frozen=True)
class FedFomo(Method):
    """w_i <- w_i + sum_j weight_j (w_j - w_i) over the M models that it is sent, then local training."""

    group: ClassVar[str] = "collaboration graph"
    when: ClassVar[str] = "Clients may see each other's models, and have enough samples to hold some out for choosing."
    hands_out_models: ClassVar[bool] = True
    # No model is meant for the client; that its own is not lengths away from all others' can be checked all the same.
    answers: ClassVar[Mapping[str, str]] = {"w": "other*"}
    anew: ClassVar[str] = "it starts from its first model, and takes on what other silos' models do better"

    models: int = about(
        5,
        "How many other clients' models each client is sent in a round, M; with fewer others, all of them.",
        range="1 or more",
        source="Zhang et al. 2021, Algorithm 1; 5 is what PFLlib has",
    )
    held_out: float = about(
        0.2,
        "Share of its training samples on which a client compares models, and which it never trains on.",
        range="0 to 1",
        source="Zhang et al. 2021, Eq. 3; 0.2 is what the authors' commands have",
    )

    def __post_init__(self) -> None:
        checks.count("models", self.models)
        checks.share("held_out", self.held_out)

    @property
    def remembers(self) -> bool:
        """Each client goes on from its own last model."""
        return True

    def server_init(self, w: Rows) -> State:
        """Keep every client's last model; nobody has reported a weight, or was sent anyone's model."""
        itself = torch.eye(len(w), dtype=torch.float64, device=w.params.device)
        played = Rows.of(itself.new_zeros((len(w), 1)))
        return State(len(w), {"w": w, "played": played}, dict.fromkeys(("xi", "affinity", "sent"), itself))

    def seats(self, state: State) -> Tensor:
        """Return whose models each client is sent, `(m, M)` positions; its own fills the seats that nobody has."""
        itself = torch.arange(state.num_clients, device=state.pairs["xi"].device)[:, None]
        nobody = (itself == itself.T) | (state.rows["played"].params.T == 0)
        order = squared_distances(state.rows["w"].params).argsort(stable=True, dim=1)
        for key in (-state.pairs["affinity"], state.pairs["sent"] > 0, nobody):  # the last one counts most
            order = order.gather(1, key.gather(1, order).to(torch.float64).argsort(stable=True, dim=1))
        chosen = torch.where(nobody.gather(1, order), itself, order)[:, : self.models]
        return torch.cat([chosen, itself.expand(-1, self.models - chosen.shape[1])], 1)

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send each client M models of others, as they are."""
        seats = self.seats(state)
        return state, {f"other{s}": state.rows["w"][seats[:, s]] for s in range(self.models)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Store models, and add weights to the affinity.

        Its rows are kept as means, which have the order of the sums and add up to 1.
        """
        where = present.nonzero()[:, 0].to(state.pairs["xi"].device)
        seats, played, pairs = self.seats(state)[where], state.rows["played"].params[where], dict(state.pairs)
        none = torch.zeros_like(pairs["xi"][where])
        said = reply["weights"].params.clamp(min=0).to(none)  # whatever was sent, it is a mixture
        said = torch.cat([said[:, :1] + (said.sum(1, keepdim=True) == 0), said[:, 1:]], 1)
        said = said / said.sum(1, keepdim=True)
        weights = none.scatter_add(1, torch.cat([where[:, None], seats], 1), said)
        sent = none.scatter_add(1, seats, torch.full_like(none[:, :1], 1 / self.models).expand(-1, self.models))
        for name, new, past in (("xi", weights, 0), ("affinity", weights, played + 1), ("sent", sent, played + 1)):
            mean = pairs[name][where] * (past / (past + 1)) + new / (past + 1)
            pairs[name] = pairs[name].index_put((where,), mean)
        rows = {"w": reply["w"], "played": Rows.of(played + 1)}
        return state.replace({name: state.rows[name].put(where, value) for name, value in rows.items()}, pairs)

    def server_leave(self, state: State, stay: Tensor) -> State:
        """Forget who left; the weight that it had is each client's own."""
        state = state.take(stay)
        return state.replace(pairs={name: rest_to_itself(pairs) for name, pairs in state.pairs.items()})

    def client_init(self, w: Rows) -> State:
        """Keep the client's model."""
        return State(len(w), rows={"w": w})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Take on what does better on the samples held out, then train on the rest; reply with the weights too."""
        w, (rest, held) = state.rows["w"], local.held_out(self.held_out)
        own, others = held.loss(w), [message[f"other{s}"] for s in range(self.models)]
        gains = torch.cat([gain(own, held.loss(each), each.params - w.params) for each in others], 1)
        total = gains.sum(1, keepdim=True)
        weights = gains / torch.where(total > 0, total, 1.0)
        params, buffers = w.params.clone(), w.buffers.clone()
        for s, each in enumerate(others):
            weight = weights[:, s : s + 1].to(params)
            params += weight * (each.params - w.params)
            buffers += weight * (each.buffers - w.buffers)
        trained = rest.run(Rows(params, buffers), descent)
        reply = {"w": trained, "weights": Rows.of(torch.cat([(total == 0).to(weights), weights], 1))}
        return state.replace(rows={"w": trained}), reply

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's model; none that it gets is meant for it."""
        return {"own": state.rows["w"]}

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return the weights that each client reported last, itself if it never did."""
        return {**listening(state.pairs["xi"]), "events": []}
