"""A method as a client meets it that comes after the run: the server's last state with one row more.

Only the newcomer takes part. The others' rows, and what all of them share, stay what the run left, whatever the
newcomer replies: a global model is not one client's to move. So the run is a constant here, and what changes is a stack
of height one. No method has a line for it: growing the federation is generic (`State.append`).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedamp.methods.base import ABOUT, SPECTRUM
from fedamp.methods.wrapped import Wrapped
from fedamp.rows import Message, Rows, State

PAIRS = "pairs of "
"""What the newcomer's row of the entries in `State.pairs` is called among its own rows."""
LISTENS = "listens_to"
"""The entry of `diagnostics` with the newcomer's weights, `(m + 1,)`: the run's clients in their order, and itself."""


@dataclass(frozen=True)
class Joining(Wrapped):
    """What `method` does in rounds k + 1, k + 2, ... if only a newcomer is present and nothing that was there moves."""

    last: State = field(repr=False)  # the server's, after the run's last round
    k: int  # rounds that the run had
    names: tuple[str, ...] = ()  # of the run's clients, for people

    def server_init(self, w: Rows) -> State:
        """Grow the federation by one row, with the newcomer's first model."""
        if len(w) != 1:
            raise ValueError(f"got {len(w)} first models; newcomers join one at a time")
        return self._newcomers_part(self.last.append(self.method.server_init(w)))

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send the newcomer its row of what the method sends to everyone."""
        sent, message = self.method.server_send(self.federation(state), self.k + k)
        return self._newcomers_part(sent), {name: rows[slice(-1, None)] for name, rows in message.items()}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Receive the newcomer's reply as that of the only client present; what is shared stays."""
        alone = torch.arange(self.last.num_clients + 1) == self.last.num_clients
        received = self.method.server_receive(self.federation(state), reply, alone)
        return self._newcomers_part(received).replace(shared=self.last.shared)

    def client_init(self, w: Rows) -> State:
        """Begin at the model that the server sends, as a client does that has lost its own: the run has ended."""
        _, message = self.server_send(self.server_init(w), 1)
        return self.method.client_anew(w, message)

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return what the method says about the newcomer, and whom it listens to; not what it says about the others."""
        said, m = self.method.diagnostics(self.federation(state)), self.last.num_clients
        xi = said.pop("xi", None)
        mine: dict[str, Any] = {
            name: value[-1:] if isinstance(value, Tensor) and value.ndim == 1 else value
            for name, value in said.items()
            if name != SPECTRUM
        }
        mine[ABOUT] = [(0, text) for i, text in said.get(ABOUT, []) if i == m]
        return {**mine, "events": [], **({} if xi is None else {LISTENS: xi[-1]})}

    def federation(self, state: State) -> State:
        """Return the server's state with everyone in it: the run's clients as they were, and the newcomer."""
        mine = {name: rows for name, rows in state.rows.items() if not name.startswith(PAIRS)}
        grown = self.last.append(State(1, mine))
        pairs = {name: pairs.clone() for name, pairs in grown.pairs.items()}
        for name in pairs:
            pairs[name][-1] = state.rows[PAIRS + name].params[0]
        return State(grown.num_clients, grown.rows, pairs, state.shared)

    def _newcomers_part(self, federation: State) -> State:
        """Return what is the newcomer's of the server's state, and what is shared."""
        rows = {name: rows[slice(-1, None)] for name, rows in federation.rows.items()}
        pairs = {PAIRS + name: Rows.of(pairs[-1:]) for name, pairs in federation.pairs.items()}
        return State(1, {**rows, **pairs}, shared=federation.shared)
