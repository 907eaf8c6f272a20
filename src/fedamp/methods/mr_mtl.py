"""MR-MTL, mean-regularised multi-task learning: every client trains on near the mean of all clients' models.

Symbols: w_i the client's model, u the mean of all m clients' last models, lam(bda) the strength of the pull:

    w_i     local training of F_i(w) + lam/2 |w - u|^2 from the w_i of its last round,  u = 1/m sum_j w_j

Sources: Evgeniou and Pontil, "Regularized Multi-Task Learning", KDD 2004; for federated learning Smith et al.,
"Federated Multi-Task Learning", NIPS 2017, and Liu et al., "On Privacy and Personalization in Cross-Silo Federated
Learning", NeurIPS 2022. The code of Liu et al. adds the mean of the clients' updates to a model that it begins with,
which is the mean of their models if they began at that one; it takes everyone in every round, and by default weighs
them by their samples. Ours is the plain mean of the objective, in which who is absent counts with its last model.
It is FedAMP with uniform weights that starts at the client's own model: tests/methods/test_personal_models.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.advice import pull_advice
from fedamp.methods.base import Local, Method, proximal
from fedamp.rows import Message, Rows, State


@dataclass(frozen=True)
class MRMTL(Method):
    """w_i = argmin_w F_i(w) + lam/2 |w - u|^2, u the mean of all clients' last models."""

    group: ClassVar[str] = "personal parts"
    when: ClassVar[str] = "All clients' data differ by about as much: the plainest way between alone and together."
    answers: ClassVar[Mapping[str, str]] = {"w": "u"}
    anew: ClassVar[str] = "its next training starts at the mean of all models, not where its last one ended"

    lam: float = about(
        1e-2,
        "Strength of the pull to the mean of all clients' models, lambda.",
        range="0 or more",
        source="Liu et al. 2022; 1e-2 did best, of 1e-3 to 1, on held-out samples of the digits (practical "
        "setting, 20 clients, seeds 7 and 8)",
    )

    def __post_init__(self) -> None:
        checks.not_negative("lam", self.lam)

    @property
    def remembers(self) -> bool:
        """Training starts where the last one ended."""
        return True

    def server_init(self, w: Rows) -> State:
        """Keep every client's last model: it counts while the client is absent."""
        return State(len(w), rows={"w": w})

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send everyone the mean of all models."""
        return state, {"u": state.rows["w"].mean().repeat(state.num_clients)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Store the present clients' models."""
        return state.replace(rows={"w": state.rows["w"].put(present, reply["w"])})

    def client_init(self, w: Rows) -> State:
        """Keep the client's model."""
        return State(len(w), rows={"w": w})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train on from where the last round ended, near the mean."""
        u = message["u"].params
        w = local.run(state.rows["w"], proximal, anchor=u, strength=u.new_full((len(u), 1), self.lam))
        return state.replace(rows={"w": w}), {"w": w}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's model and the mean."""
        return {"own": state.rows["w"], "received": message["u"]}

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return a warning if everyone trains alone, or nobody moves away from the mean."""
        return {"events": pull_advice("the mean of all models", self.lam)}
