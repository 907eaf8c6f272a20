"""Separate: every client trains alone. Nothing leaves a client; the yardstick for all collaboration."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedamp.methods.base import Local, Method, descent
from fedamp.rows import Message, Rows, State


@dataclass(frozen=True)
class Separate(Method):
    """w_i^k = local training from w_i^{k-1} on D_i."""

    group: ClassVar[str] = "alone"
    when: ClassVar[str] = "To know what collaboration is worth, or where nothing may leave a client."
    anew: ClassVar[str] = "it starts from its first model: the server has none of its models"

    @property
    def remembers(self) -> bool:
        """Each client has its model, and nobody else does."""
        return True

    def server_init(self, w: Rows) -> State:
        """Keep nothing."""
        return State(len(w))

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send nothing."""
        return state, {}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Learn nothing."""
        return state

    def client_init(self, w: Rows) -> State:
        """Keep the client's model."""
        return State(len(w), rows={"w": w})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train on from where the last round ended."""
        w = local.run(state.rows["w"], descent)
        return state.replace(rows={"w": w}), {}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's model."""
        return {"own": state.rows["w"]}
