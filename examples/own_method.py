"""Your own method: one class with both halves, pure functions of rows.

This one is FedAvg whose server listens to everybody equally, whatever the number of samples, and keeps half of
what it knew before.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

import fedamp
from fedamp.methods import Local, Method
from fedamp.methods.base import descent
from fedamp.rows import Message, Rows, State


@dataclass(frozen=True)
class Reluctant(Method):
    """w <- keep w + (1 - keep) mean of the present clients' models."""

    scored: ClassVar[str] = "own"
    keep: float = 0.5

    def server_init(self, w: Rows) -> State:
        return State(len(w), shared={"w": w.mean()})

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        return state, {"w": state.shared["w"].repeat(state.num_clients)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        both = Rows.cat([state.shared["w"], reply["w"].mean()])
        weights = both.params.new_tensor([[self.keep, 1 - self.keep]])
        return state.replace(shared={"w": both.mix(weights)})

    def client_init(self, w: Rows) -> State:
        return State(len(w), rows={"w": w})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        w = local.run(message["w"], descent)
        return state.replace(rows={"w": w}), {"w": w}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        return {"own": state.rows["w"], "received": message["w"]}


result = fedamp.run(method=Reluctant(keep=0.3), rounds=10)
print(f"best mean test accuracy: {result.bmta:.1f} %")
