"""What a method is: two halves, server and client, as pure functions of rows.

A method's attributes are its hyperparameters and nothing else; all that changes passes through `State` and
`Message`. The engine gives the client half a `Local`, which is all that a method sees of data and optimiser.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, overload

import torch
from torch import Tensor

from fedamp.rows import Columns, Message, Rows, State

ABOUT = "about_clients"
"""The entry of `diagnostics` with warnings about single clients: a list of positions and texts. Whoever writes them
down puts before a text the names or numbers of all clients that it is about: `by_text`."""
GROUPS = {
    "alone": "Nobody hears of anybody: what all the others are measured against.",
    "one model for all": "The server averages, and everybody uses the same model.",
    "fine-tuned": "One model for all, which each client trains on before it uses it.",
    "personal parts": "Each client keeps a model, or some layers, of its own beside what all share.",
    "collaboration graph": "Each client gets a mixture of its own: more of those who are like it.",
    "clusters": "Clients that are alike are found and put together; each cluster has one model.",
}
"""The kinds of methods, in the order in which they are listed, each in a line."""
SPECTRUM = "spectrum"
"""The one entry of `diagnostics` that is a list of numbers and not one number for each client."""


def by_text(about: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """Return whom each warning of `ABOUT` concerns: many clients can have one cause, which is told once."""
    found: dict[str, list[int]] = {}
    for i, text in about:
        found.setdefault(text, []).append(i)
    return found


class Grad(Protocol):
    """The gradient of each client's loss on its current minibatch."""

    def __call__(self, point: Tensor, of: str = "", part: tuple[int, int] = (1, 1)) -> Tensor:
        """Return the gradient at any point `(n, d)`, each row on its client's minibatch.

        `of` names the entry of a dict `start` whose buffers the pass reads and moves. `part` (i, p) takes the i-th of p
        equal parts of the minibatch, counted from 1; one with fewer than 2 p samples is not cut, and each part is all
        of it: a part of one sample could not train a BatchNorm.
        """


Direction = Callable[..., Tensor]
"""`direction(w, grad, **context)` with w `(n, d)`: the optimiser steps against what it returns, `(n, d)`.

`context` is what `Local.run` was given: tensors with a row for each client."""

Directions = Callable[..., Mapping[str, Tensor]]
"""`directions(rows, grad, **context)`: for methods that move several stacks, by name, on one minibatch."""


class Local(Protocol):
    """Local training of n clients for one round: walks the minibatches, applies the optimiser.

    A Protocol, so that tests can give one with exact proximal steps.
    """

    @property
    def sizes(self) -> Tensor:
        """Training samples of each client, `(n, 1)`."""

    @property
    def steps(self) -> Tensor:
        """Optimiser steps that each client takes in this round, `(n, 1)`."""

    @property
    def lr(self) -> float:
        """The optimiser's learning rate."""

    @property
    def epochs(self) -> int | None:
        """Passes over each client's samples in this round; None if a round is a number of steps."""

    def part(self, half: Tensor) -> "Local":
        """Return the same training on a part of each client's samples, by `half` `(n, 1)`: 1 or 2; 0 is all of them."""

    def held_out(self, share: float) -> tuple["Local", "Local"]:
        """Return the same training without a share of each client's samples, and on that share alone.

        Which samples these are depends on seed and client alone: they are the same in every round. Who has fewer than 4
        samples holds none out, and has all of them on both sides.
        """

    def again(
        self,
        number: int = 1,
        *,
        epochs: int | None = None,
        optimizer: str | None = None,
        lr: float | None = None,
        only: Columns | None = None,
    ) -> "Local":
        """Return another pass over each client's samples in the same round, with minibatches of its own.

        Passes are told apart by `number`; 0 has the minibatches of `run` itself. What is given replaces the run's own
        epochs, optimiser (`adam` or `sgd`, plain) and learning rate. With `only` the parameters of all other columns
        stay as they are.
        """

    def head(self, layers: int = 1) -> Columns:
        """Return the columns of the model's last so many layers with weights, and of all that comes after them.

        A normalisation is no layer here; it belongs to the layer that it follows. 0 layers have no columns.
        """

    def norm(self) -> Columns:
        """Return the columns of the model's normalisations: weights, biases, and the statistics that they carry."""

    def loss(self, rows: Rows) -> Tensor:
        """Return the mean loss of each client's row on all of its training samples, `(n, 1)`: no training.

        After `part` or `held_out` these are the samples of that part.
        """

    def noise(self, of: str = "") -> Tensor:
        """Return the variance that privacy's noise has put into the rows that `run` returned last, `(n, 1)` float64.

        Summed over all parameters, of the entry `of` of a dict `start`; 0 where samples are not protected. Known for
        plain SGD, estimated for other optimisers.
        """

    def at_home(self) -> "Local":
        """Return the same training for a model that never leaves its client: without clipping and noise."""

    @overload
    def run(self, start: Rows, direction: Direction, **context: Tensor) -> Rows: ...
    @overload
    def run(self, start: Mapping[str, Rows], direction: Directions, **context: Tensor) -> Mapping[str, Rows]: ...
    def run(self, start: Any, direction: Any, **context: Tensor) -> Any:
        """Return where the rows that start at `start` and follow `direction` end."""


def descent(w: Tensor, grad: Grad) -> Tensor:
    """Return the plain gradient: local training alone."""
    return grad(w)


def proximal(w: Tensor, grad: Grad, anchor: Tensor, strength: Tensor) -> Tensor:
    """Return the gradient of F(w) + strength/2 |w - anchor|^2.

    If lr strength > 1, a step along it would overshoot. The engine knows this direction, and applies such a pull at the
    step's end instead: `optimizers.Pull`.
    """
    return torch.addcmul(grad(w), strength, w - anchor)


def with_zeros(state: State, *names: str) -> State:
    """Return the server's state with these numbers, `(m, 1)` each; 0 where it has none yet.

    Such is the first one, and one that an earlier version saved. `noise`: how noisy privacy has made each model.
    """
    w = state.rows["w"].params
    zero = Rows.of(torch.zeros((len(w), 1), dtype=torch.float64, device=w.device))
    return state.replace(rows={name: zero for name in names if name not in state.rows})


@dataclass(frozen=True)
class Method(ABC):
    """A federated method. Rounds are numbered from 1; `m` rows on the server, `n` on a stack of clients."""

    group: ClassVar[str] = ""
    """Which kind of method it is: one of `GROUPS`."""
    when: ClassVar[str] = ""
    """When to use it, in a line."""
    scored: ClassVar[str] = "own"
    """The entry of `client_models` that counts for the method's result."""
    takes_home: ClassVar[str] = "scored"
    """What clients take home where samples are held out: the models at `scored`, or the `chosen` ones of own, received
    and the midpoint between them (`fedamp.records.take_home`)."""
    optimizer: ClassVar[str] = "adam"
    lr: ClassVar[float] = 1e-3
    plain_sgd_only: ClassVar[bool] = False
    """Whether the method's own mathematics rests on plain SGD steps."""
    answers: ClassVar[Mapping[str, str]] = {}
    """Which model of the message a model of the reply was trained from or near, if the two have different names.

    A pattern like `w*` names several, any of which it may be: the reply is compared with the nearest."""
    hands_out_models: ClassVar[bool] = False
    """Whether a client gets other clients' models as they are, and not mixed: a federation must have agreed to it."""
    changes: ClassVar[Mapping[str, str]] = {}
    """Which entry of the reply is not a model but a change, and of which entry of the message."""
    anew: ClassVar[str] = "its next training starts from the model that the server sends it"
    """What it costs if a client loses what it kept and begins anew (`client_anew`): of methods that remember."""

    @property
    def remembers(self) -> bool:
        """Whether a client's training depends on what it kept of earlier rounds; if not, it may lose it.

        The conformance tests prove it of every method, either way.
        """
        return False

    @abstractmethod
    def server_init(self, w: Rows) -> State:
        """Return the server's state, given every client's first model."""

    @abstractmethod
    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Return what round k sends: a row for each of the m clients."""

    @abstractmethod
    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Return the state after round k's replies: a row for each True of `present` `(m,)`, in order."""

    def server_anew(self, state: State) -> State:
        """Return the state for clients that all begin anew; only a method with `changes` has something to undo."""
        return state

    def server_leave(self, state: State, stay: Tensor) -> State:
        """Return the state of the clients that stay, by their positions: the others have no weight in any mixture.

        With `changes` those who stay begin anew: what the others added can't be told from the sum.
        """
        return self.server_anew(state.take(stay))

    @abstractmethod
    def client_init(self, w: Rows) -> State:
        """Return the clients' state, given their first models."""

    def client_anew(self, w: Rows, message: Message) -> State:
        """Return the state of clients that have lost theirs: as at first, but at the model that the server sends."""
        return self.client_init(self.client_models(self.client_init(w), message).get("received", w))

    @abstractmethod
    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train locally; return the clients' new state and what they reply."""

    def doubts(self, local: Local) -> list[str]:
        """Return warnings about this method with this model, each with its cause and its cure.

        It is asked once, before the first round: a run that makes no sense gets a word. `local` is that of any round.
        """
        return []

    @abstractmethod
    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Return what is scored after `client_update`: `own`, and `received` if the server sent a model."""

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return what the server can say about the last `server_send`; `events` is a list of warnings.

        A vector has one number for each client; a float is one for all, and so is the list `spectrum`.
        """
        return {"events": []}
