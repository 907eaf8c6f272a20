"""FedAvg: one global model, the sample-weighted mean of what the clients make of it.

FedAvg-FT is the same trajectory scored after the round's local training.

Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
2017, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedamp.methods.base import Local, Method, descent
from fedamp.rows import Message, Rows, State


@dataclass(frozen=True)
class FedAvg(Method):
    """w^{k+1} = sum_i (n_i / n) w_i^{k+1} over the present clients."""

    group: ClassVar[str] = "one model for all"
    when: ClassVar[str] = "Clients' data are alike, or one model has to serve everybody, also those who have no data."
    scored: ClassVar[str] = "received"

    def server_init(self, w: Rows) -> State:
        """Begin at the mean of the first models, which is the model itself if they are equal."""
        return State(len(w), shared={"w": w.mean()})

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send everyone the global model."""
        return state, {"w": state.shared["w"].repeat(state.num_clients)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Average the present clients, each with its share of the samples."""
        samples = reply["samples"].params.T
        return state.replace(shared={"w": reply["w"].mix(samples / samples.sum())})

    def client_init(self, w: Rows) -> State:
        """Keep the client's model: it is scored, and never trained from."""
        return State(len(w), rows={"w": w})

    def train(self, w: Rows, local: Local) -> Rows:
        """Descend from the global model."""
        return local.run(w, descent)

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train from the global model; reply with the result and the number of samples."""
        w = self.train(message["w"], local)
        samples = Rows.of(local.sizes.to(torch.float64))
        return state.replace(rows={"w": w}), {"w": w, "samples": samples}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the fine-tuned and the global model."""
        return {"own": state.rows["w"], "received": message["w"]}
