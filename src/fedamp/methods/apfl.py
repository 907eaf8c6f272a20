"""APFL: each client mixes a model of its own with its copy of a global one.

Symbols: w the global model and its local copy, v the client's own, a its mixture weight, eta the learning rate, and
the personalized model a v + (1 - a) w.
Source: Deng et al., "Adaptive Personalized Federated Learning", 2020, Algorithm 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.base import Grad, Local, Method
from fedamp.rows import Message, Rows, State


def mixed_step(rows: Mapping[str, Tensor], grad: Grad, eta: Tensor | None = None) -> Mapping[str, Tensor]:
    """Return the directions of w, v and a on one minibatch; `eta` `(n, 1)` is a's step; None keeps a fixed.

    With g the gradient at a v + (1 - a) w: v follows a g, and a follows <v - w, g>, kept within [0, 1].
    """
    w, v, a = rows["w"], rows["v"], rows["a"]
    at_mixture = grad(torch.lerp(w, v, a), of="v")
    towards = torch.zeros_like(a)
    if eta is not None:
        slope = ((v - w) * at_mixture).sum(1, keepdim=True)
        # The engine steps by the learning rate; this is the step that ends where the projection does.
        towards = (a - (a - eta * slope).clamp(0, 1)) / eta
    return {"w": grad(w, of="w"), "v": a * at_mixture, "a": towards}


@dataclass(frozen=True)
class APFL(Method):
    """Averages w over the present clients, unweighted; v and a never leave the client."""

    group: ClassVar[str] = "personal parts"
    when: ClassVar[str] = "Each client has some use of the common model and some of its own: the mixture says how much."
    optimizer: ClassVar[str] = "sgd"
    lr: ClassVar[float] = 1e-2
    plain_sgd_only: ClassVar[bool] = True
    anew: ClassVar[str] = "its own model v starts at the global model, and its mixture weight as at first"

    mixture: float = about(
        0.5,
        "Share a of the client's own model v in its personalized model a v + (1 - a) w.",
        range="0 to 1",
        source="Deng et al. 2020, Algorithm 1, alpha; 0.5 is ours, not tuned; presets have what validation chose",
    )
    adaptive: bool = about(
        False,
        "Whether every client learns its own mixture, beginning at `mixture`.",
        range="true or false",
        source="Deng et al. 2020, Algorithm 1",
    )

    def __post_init__(self) -> None:
        checks.share("mixture", self.mixture)
        checks.truth("adaptive", self.adaptive)

    @property
    def remembers(self) -> bool:
        """Each client has its own model v and its mixture weight a."""
        return True

    def server_init(self, w: Rows) -> State:
        """Begin at the mean of the first models."""
        return State(len(w), shared={"w": w.mean()})

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send everyone the global model."""
        return state, {"w": state.shared["w"].repeat(state.num_clients)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Average the present clients' copies."""
        return state.replace(shared={"w": reply["w"].mean()})

    def client_init(self, w: Rows) -> State:
        """Keep both models and the mixture weight."""
        return State(len(w), rows={"w": w, "v": w, "a": Rows.of(w.params.new_full((len(w), 1), self.mixture))})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Move w from the global model, v from the client's own, and a if it is adaptive."""
        a = state.rows["a"].params
        adapted = {"eta": torch.full_like(a, local.lr)} if self.adaptive else {}
        rows = local.run({**state.rows, "w": message["w"]}, mixed_step, **adapted)
        return state.replace(rows=rows), {"w": rows["w"]}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the mixture of v with the local w, and the global model.

        The buffers are v's: training passes through the mixture are what moved them.
        """
        w, v, a = state.rows["w"].params, state.rows["v"], state.rows["a"].params
        return {"own": Rows(torch.lerp(w, v.params, a), v.buffers), "received": message["w"]}
