"""Ditto: FedAvg's global model, and beside it a model of each client's own that is trained near it.

Symbols: w the global model, v_i the client's own, lam(bda) the strength of the pull between them:

    w       as in FedAvg
    v_i     local training of F_i(v) + lam/2 |v - w|^2 from the v_i of its last round; w as it was received

Source: Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1 and
Objective (Ditto). The authors' code takes turns, a step of v and a step of w on each minibatch, which comes to the same
as two passes over the same minibatches; its server takes the plain mean of clients drawn by their size, and ours the
mean by size of all who are present. It can also choose lam for each client, by its held-out loss; ours has one for all.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.advice import pull_advice
from fedamp.methods.base import Local, proximal
from fedamp.methods.fedavg import FedAvg
from fedamp.rows import Message, Rows, State


@dataclass(frozen=True)
class Ditto(FedAvg):
    """w is FedAvg's; v_i = argmin_v F_i(v) + lam/2 |v - w|^2 never leaves the client."""

    group: ClassVar[str] = "personal parts"
    when: ClassVar[str] = "Each client needs a model of its own, and the common one also has to be a good one."
    scored: ClassVar[str] = "own"
    anew: ClassVar[str] = "its own model v starts at the global model"

    lam: float = about(
        1e-2,
        "Strength of the pull of the client's own model to the global one, lambda.",
        range="0 or more",
        source="Li et al. 2021, Algorithm 1; 1e-2 did best, of 1e-3 to 1, on held-out samples of the digits (practical "
        "setting, 20 clients, seeds 7 and 8)",
    )
    personal_epochs: int | None = about(
        None,
        "Passes over the client's samples for its own model; by default as long as for the global one. Both see the "
        "same minibatches.",
        unit="epochs",
        range="1 or more",
        source="Li et al. 2021, Algorithm 1, s",
    )

    def __post_init__(self) -> None:
        checks.not_negative("lam", self.lam)
        if self.personal_epochs is not None:
            checks.count("personal_epochs", self.personal_epochs)

    @property
    def remembers(self) -> bool:
        """Each client has its own model v."""
        return True

    def client_init(self, w: Rows) -> State:
        """Keep the client's own model."""
        return State(len(w), rows={"v": w})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train the global model as FedAvg does; train v near what was received, on the same minibatches."""
        _, reply = super().client_update(state, message, local)
        w = message["w"].params
        strength = w.new_full((len(w), 1), self.lam)
        personal = local.again(0, epochs=self.personal_epochs)
        v = personal.run(state.rows["v"], proximal, anchor=w, strength=strength)
        return state.replace(rows={"v": v}), reply

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's own and the global model."""
        return {"own": state.rows["v"], "received": message["w"]}

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return a warning if the clients' own models are Separate's, or the global one's copies."""
        return {"events": pull_advice("the global model", self.lam)}
