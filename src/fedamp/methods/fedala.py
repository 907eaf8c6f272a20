"""FedALA: each client learns how much of the global model to take over, weight by weight, before it trains.

    start_i = w_i + (w - w_i) A_i;  A_i <- clip(A_i - eta g (w - w_i), 0, 1), g the gradient at start_i on a minibatch

Symbols: w the global model (FedAvg's), w_i the client's, A_i its weights: learned for the last layers, 1 in all others.
Source: Zhang et al., "FedALA: Adaptive Local Aggregation for Personalized Federated Learning", AAAI 2023, Algorithm 1.
A_i begins at 1. The first time, the authors learn it until the loss stops changing, in their code for at least 11
passes, and they draw other samples, 80%, in each round; here they are `first_passes` passes, always on the same 80%.
Their code tests where a round's training starts; we, as elsewhere, where it ends. BatchNorm's statistics are w's.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.base import Grad, Local
from fedamp.methods.fedavg import FedAvg
from fedamp.methods.personal_parts import last
from fedamp.rows import Message, Rows, State

SHARE = 0.8
"""Of a client's samples, those that its weights are learned on: Zhang et al. 2023, s; the authors' code has 80%."""


def to_clipped(a: Tensor, grad: Grad, own: Tensor, w: Tensor, eta: Tensor) -> Tensor:
    """Return the direction whose step of length 1 ends at clip(a - eta g (w - own), 0, 1)."""
    return a - (a - eta * grad(torch.lerp(own, w, a)) * (w - own)).clamp(0, 1)


@dataclass(frozen=True)
class FedALA(FedAvg):
    """FedAvg whose clients start between their own model and the global one."""

    group: ClassVar[str] = "personal parts"
    when: ClassVar[str] = "As `fedavg-ft`, where some of what a client has learned is lost when it takes over the mean."
    scored: ClassVar[str] = "own"
    anew: ClassVar[str] = "its next training starts at the global model, and its weights are learned from 1 again"

    eta: float = about(
        1.0,
        "Step by which the weights are learned; 0 keeps them at 1, which is `fedavg-ft`.",
        range="0 or more",
        source="Zhang et al. 2023, Algorithm 1; 1 is from the authors' code",
    )
    layers: int = about(
        1,
        "Layers with weights, counted from the last that the module registers, that are mixed; all others are the "
        "global model's.",
        unit="layers",
        range="1 or more",
        source="Zhang et al. 2023, p; the authors' code mixes the last 2 tensors: one layer's weight and bias",
    )
    first_passes: int = about(
        11,
        "Passes over the samples when a client learns its weights for the first time; later it is one in each round.",
        unit="passes",
        range="1 or more",
        source="the fewest after which the authors' code stops: once the last 10 losses are alike",
    )

    def __post_init__(self) -> None:
        checks.not_negative("eta", self.eta)
        checks.count("layers", self.layers)
        checks.count("first_passes", self.first_passes)

    @property
    def remembers(self) -> bool:
        """Each client has its model, its weights, and whether it has learned them before."""
        return True

    def client_init(self, w: Rows) -> State:
        """Keep the client's model, and weights of 1 that have not been learned yet."""
        learned = Rows.of(torch.zeros_like(w.params[:, :1]))
        return State(len(w), rows={"w": w, "a": Rows.of(torch.ones_like(w.params)), "learned": learned})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Learn the weights, and train from the mixture of both models."""
        w, own, learned = message["w"], state.rows["w"].params, state.rows["learned"].params
        apart = (w.params != own).any(1, keepdim=True)  # equal models leave nothing to learn, as in the first round
        a = self.weights(state.rows["a"].params, own, w, apart & (learned == 0), local)
        mixed = Rows(torch.lerp(own, w.params, a), w.buffers)
        trained, reply = super().client_update(state, {"w": mixed}, local)
        kept = {"a": Rows.of(a), "learned": Rows.of(torch.where(apart, 1, learned))}
        return trained.replace(rows=kept), reply

    def weights(self, a: Tensor, own: Tensor, w: Rows, first: Tensor, local: Local) -> Tensor:
        """Return A after one more pass, or `first_passes` for those who learn it for the `first` time, `(n, 1)`."""
        samples, head = local.held_out(1 - SHARE)[0], local.head(self.layers)
        eta = torch.full_like(own[:, :1], self.eta)
        for number in range(1, (self.first_passes if first.any() else 1) + 1):
            once = samples.again(number, epochs=1, optimizer="sgd", lr=1.0, only=head)
            moved = once.run(Rows(a, w.buffers), to_clipped, own=own, w=w.params, eta=eta).params
            a = moved if number == 1 else torch.where(first, moved, a)
        return a

    def doubts(self, local: Local) -> list[str]:
        """Return a warning if all layers of this model are mixed."""
        if not local.head(self.layers).params.all():
            return []
        return [
            f"fedala mixes {last(self.layers)} of every client's model with the global one and takes over the others "
            "as they are, and this model has no others. Choose a model with more layers (mlp, cnn-small), fewer "
            "`layers`, or fedavg-ft"
        ]
