"""A method around another one: all that it does not change is the other's, attributes as well."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedamp.methods.base import Local, Method
from fedamp.rows import Message, Rows, State


@dataclass(frozen=True)
class Wrapped(Method):
    """What `method` does."""

    method: Method

    def __post_init__(self) -> None:
        for name in Method.__annotations__:  # of the class, all of them; on the instance they hide this class's
            object.__setattr__(self, name, getattr(self.method, name))

    @property
    def remembers(self) -> bool:
        """As the method does."""
        return self.method.remembers

    def server_init(self, w: Rows) -> State:
        """As the method does."""
        return self.method.server_init(w)

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """As the method does."""
        return self.method.server_send(state, k)

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """As the method does."""
        return self.method.server_receive(state, reply, present)

    def server_anew(self, state: State) -> State:
        """As the method does."""
        return self.method.server_anew(state)

    def server_leave(self, state: State, stay: Tensor) -> State:
        """As the method does."""
        return self.method.server_leave(state, stay)

    def client_init(self, w: Rows) -> State:
        """As the method does."""
        return self.method.client_init(w)

    def client_anew(self, w: Rows, message: Message) -> State:
        """As the method does."""
        return self.method.client_anew(w, message)

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """As the method does."""
        return self.method.client_update(state, message, local)

    def doubts(self, local: Local) -> list[str]:
        """As the method does."""
        return self.method.doubts(local)

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """As the method does."""
        return self.method.client_models(state, message)

    def diagnostics(self, state: State) -> dict[str, Any]:
        """As the method does."""
        return self.method.diagnostics(state)
