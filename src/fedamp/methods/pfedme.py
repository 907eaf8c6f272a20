"""pFedMe: the global model descends the Moreau envelopes of the clients' losses; their proximal points are personal.

Symbols: w the global model and its local copy, theta the client's personal model, eta the learning rate, K the inner
steps, lam(bda) the strength of the pull, beta the server's step. On each minibatch, with f its loss:

    theta   K gradient steps of rate `personal_lr` towards argmin f(theta) + lam/2 |theta - w|^2
    w       <- w - eta lam (w - theta), a gradient step on the Moreau envelope
    server  w <- (1 - beta) w + beta mean(w_i) over the present clients

Source: Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, Algorithm 1, which leaves
open where the inner steps start. As in the authors' code, theta starts a round at the global model, and every minibatch
where the last one left it. That code (github.com/CharlieDinh/pFedMe) differs in four things: it decays theta's weights
by 1e-3, weighs clients by their samples, trains clients that take no part in the mean, and what it scores as theta is
w_i, for both are one tensor (its issue 5). We do as Algorithm 1 says. BatchNorm's statistics are theta's, for w takes
no gradient.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor

from fedamp import checks
from fedamp.errors import UserError
from fedamp.fields import about
from fedamp.methods.base import Grad, Local
from fedamp.methods.fedavg import FedAvg
from fedamp.rows import Message, Rows, State


def envelope_step(
    rows: Mapping[str, Tensor], grad: Grad, *, lam: float, steps: int, rate: float, eta: float
) -> Mapping[str, Tensor]:
    """Return the directions of w and of theta, which is called v here, on one minibatch."""
    w, start = rows["w"], rows["v"]
    theta = start
    for _ in range(steps):
        theta = theta - rate * (grad(theta, of="v") + lam * (theta - w))
    # The engine steps by eta; this is the step that ends where the inner steps do.
    return {"w": lam * (w - theta), "v": (start - theta) / eta}


@dataclass(frozen=True)
class PFedMe(FedAvg):
    """w descends the mean of min_theta F_i(theta) + lam/2 |theta - w|^2; theta never leaves the client."""

    group: ClassVar[str] = "personal parts"
    when: ClassVar[str] = "As `ditto`, where clients can keep nothing: personal models are made anew in every round."
    scored: ClassVar[str] = "own"
    optimizer: ClassVar[str] = "sgd"
    lr: ClassVar[float] = 0.1
    plain_sgd_only: ClassVar[bool] = True

    lam: float = about(
        5.0,
        "Strength of the pull of the personal model to the client's copy of the global one, lambda. With the learning "
        "rate it makes the step of that copy: lr lambda of the way to the personal model on each minibatch.",
        range="above 0",
        source="Dinh et al. 2020, Eq. 2; the authors' code has 15 at a learning rate of 0.005, for 800 rounds. 5 at "
        "0.1 did best of five such pairs on held-out samples of the digits (practical setting, 20 clients, seed 7)",
    )
    inner_steps: int = about(
        5,
        "Gradient steps of the personal model on each minibatch, K: training takes so many times as long.",
        unit="steps",
        range="1 or more",
        source="Dinh et al. 2020, Experiments, and the authors' code",
    )
    personal_lr: float = about(
        0.09,
        "Rate of the personal model's gradient steps; times lambda it must be less than 2, or they diverge.",
        range="above 0",
        source="the authors' code, for networks",
    )
    beta: float = about(
        1.0,
        "How far the server steps towards the mean of the clients' models: 1 goes all the way.",
        range="above 0",
        source="Dinh et al. 2020, Algorithm 1; 1 is from the authors' code",
    )

    def __post_init__(self) -> None:
        checks.positive("lam", self.lam)
        checks.count("inner_steps", self.inner_steps)
        checks.positive("personal_lr", self.personal_lr)
        checks.positive("beta", self.beta)
        if self.personal_lr * self.lam >= 2:
            raise UserError(
                f"personal_lr is {self.personal_lr:g} and lam {self.lam:g}: expected a product of less than 2, or the "
                f"personal model's steps diverge. Lower personal_lr below {2 / self.lam:.3g}"
            )

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Step towards the plain mean of the present clients' models."""
        w, mean = state.shared["w"].params, reply["w"].mean()
        return state.replace(shared={"w": Rows(w + self.beta * (mean.params - w), mean.buffers)})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Move both models from the global one; keep theta, which is scored, and reply with w."""
        step = partial(envelope_step, lam=self.lam, steps=self.inner_steps, rate=self.personal_lr, eta=local.lr)
        rows = local.run({"w": message["w"], "v": message["w"]}, step)
        w, theta = rows["w"], rows["v"]
        return state.replace(rows={"w": theta}), {"w": Rows(w.params, theta.buffers)}
