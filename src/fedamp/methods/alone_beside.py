"""A method with a local-only model beside it: what each client would have without the others.

The extra model is trained as Separate's is, on the same minibatches, and kept in the client's state. Nothing of it is
sent: message, reply and the server's half are the method's own, bit for bit. It about doubles the local training.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedamp.errors import UserError
from fedamp.methods.base import Grad, Local, Method
from fedamp.methods.wrapped import Wrapped
from fedamp.rows import Message, Rows, State

ALONE = "alone"
"""The entry of `client_models`, of the client's state and of the training losses: none of them is the method's."""


def descent_alone(rows: Mapping[str, Tensor], grad: Grad) -> Mapping[str, Tensor]:
    """Return the plain gradient, as `descent` does; under a name, so that its loss is not taken for the method's."""
    return {ALONE: grad(rows[ALONE], of=ALONE)}


@dataclass(frozen=True)
class AloneBeside(Wrapped):
    """What `method` does, and beside it w_i^k = local training from w_i^{k-1} on D_i. An absent client does neither."""

    def client_anew(self, w: Rows, message: Message) -> State:
        """Begin anew with the method; what is trained alone begins at the client's first model, not at the server's."""
        return self.with_alone(self.method.client_anew(w, message), w)

    def client_init(self, w: Rows) -> State:
        """Keep what the method keeps, and the model that is trained alone: at first the client's first."""
        return self.with_alone(self.method.client_init(w), w)

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Do the method's part, then train alone from where the last round ended; reply what the method replies."""
        theirs, reply = self.method.client_update(_methods_part(state), message, local)
        return self.with_alone(theirs, local.at_home().run({ALONE: state.rows[ALONE]}, descent_alone)[ALONE]), reply

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the method's models, and the one trained alone."""
        models = self.method.client_models(_methods_part(state), message)
        _check_free(models, self.method)
        return {**models, ALONE: state.rows[ALONE]}

    def with_alone(self, state: State, alone: Rows) -> State:
        """Return the method's own state together with the models trained alone."""
        _check_free(state.rows, self.method)
        return state.replace(rows={ALONE: alone})


def without_alone(method: Method) -> Method:
    """Return the method itself, without what is trained beside it."""
    return method.method if isinstance(method, AloneBeside) else method


def _methods_part(state: State) -> State:
    rows = {name: rows for name, rows in state.rows.items() if name != ALONE}
    return State(state.num_clients, rows, state.pairs, state.shared)


def _check_free(taken: Mapping[str, Rows], method: Method) -> None:
    if ALONE in taken:
        raise UserError(
            f"{type(method).__name__} has rows named {ALONE!r} itself, and alone=True needs that name; rename them"
        )
