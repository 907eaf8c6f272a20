"""SCAFFOLD: control variates that remove the drift of each client's local steps.

Symbols: x the global model, y_i the client's, c_i and c their controls, K_i the client's own steps.
Source: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020,
Algorithm 1, option II.
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


def controlled(y: Tensor, grad: Grad, c_i: Tensor, c: Tensor) -> Tensor:
    """Return the gradient with the client's drift replaced by everyone's: g(y) - c_i + c."""
    return grad(y) - c_i + c


@dataclass(frozen=True)
class Scaffold(Method):
    """x += global_step mean_i(y_i - x) over the present; c stays the mean of all m clients' c_i."""

    group: ClassVar[str] = "one model for all"
    when: ClassVar[str] = "As `fedavg`, with many local steps on differing data, if everyone takes part in most rounds."
    optimizer: ClassVar[str] = "sgd"
    lr: ClassVar[float] = 1e-2
    plain_sgd_only: ClassVar[bool] = True
    answers: ClassVar[Mapping[str, str]] = {"y": "x"}
    changes: ClassVar[Mapping[str, str]] = {"dc": "c"}
    anew: ClassVar[str] = "all silos' controls begin at 0 again: in the next round nobody's drift is corrected"

    global_step: float = about(
        1.0,
        "How far the server steps towards the mean of the clients' models: 1 goes all the way.",
        range="above 0",
        source="Karimireddy et al. 2020, Algorithm 1, eta_g; 1 is from Huang et al. 2021, Experiments",
    )

    def __post_init__(self) -> None:
        checks.positive("global_step", self.global_step)

    @property
    def remembers(self) -> bool:
        """Each client has its control c_i."""
        return True

    def server_init(self, w: Rows) -> State:
        """Begin at the mean of the first models, with controls of 0."""
        # The sum is kept, not the mean: a client who comes late, with c_i = 0, then needs no correction.
        return State(len(w), shared={"x": w.mean(), "sum_c": Rows.of(torch.zeros_like(w.params[:1]))})

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send everyone x and c."""
        c = Rows.of(state.shared["sum_c"].params / state.num_clients)
        return state, {"x": state.shared["x"].repeat(state.num_clients), "c": c.repeat(state.num_clients)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Step towards the mean of the present clients' models; add up how their controls changed."""
        x, mean = state.shared["x"], reply["y"].mean()
        moved = x.params + self.global_step * (mean.params - x.params)
        everyone = torch.ones((1, len(reply["dc"])))
        sum_c = state.shared["sum_c"].params + reply["dc"].mix(everyone).params
        return state.replace(shared={"x": Rows(moved, mean.buffers), "sum_c": Rows.of(sum_c)})

    def server_anew(self, state: State) -> State:
        """Begin at controls of 0: one that is lost is known only as a part of the sum."""
        return state.replace(shared={"sum_c": Rows.of(torch.zeros_like(state.shared["sum_c"].params))})

    def client_init(self, w: Rows) -> State:
        """Keep the client's model, and a control of 0."""
        return State(len(w), rows={"y": w, "c_i": Rows.of(torch.zeros_like(w.params))})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train from x with the controlled gradient; c_i+ = c_i - c + (x - y) / (K_i lr)."""
        x, c, c_i = message["x"], message["c"].params, state.rows["c_i"].params
        y = local.run(x, controlled, c_i=c_i, c=c)
        # In place: with many large models each temporary counts.
        dc = (x.params - y.params).div_(local.steps.to(c) * local.lr).sub_(c)
        new = {"y": y, "c_i": Rows.of(c_i + dc)}
        return state.replace(rows=new), {"y": y, "dc": Rows.of(dc)}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's model after its local training, and the global one."""
        return {"own": state.rows["y"], "received": message["x"]}
