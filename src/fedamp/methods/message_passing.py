"""Attentive message passing: both halves of FedAMP and HeurFedAMP, which differ only in the weights xi.

Symbols: w the clients' models, u their personalized cloud models, xi `(m, m)` the collaboration weights,
alpha_k the server's step, lam(bda) the strength of collaboration. Source: Huang et al., "Personalized
Cross-Silo Federated Learning on Non-IID Data", AAAI 2021, Algorithm 1.

Where samples are protected, w_i = theta_i + privacy's noise of variance s_i, which travels with it. How useful w_j is
to client i is a question about theta_i and w_j: the listener's own noise is taken out of what is measured, and the
speaker's stays. So a noisy client is heard little and hears well. With both out, the noisiest would be heard like any
other, and whoever claims noise would look near to everyone.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedamp import checks
from fedamp.errors import UserError
from fedamp.fields import about
from fedamp.methods.advice import advice
from fedamp.methods.attention import listening, sketch
from fedamp.methods.base import Local, Method, proximal, with_zeros
from fedamp.rows import Message, Rows, State

LEAST_SKETCH = 64
"""Numbers of the shortest sketch: it tells distances to within a fifth."""


def paper_alpha(k: int, every: int = 30) -> float:
    """Return the paper's schedule: 1e4, 1e3 and 1e2 for 30 rounds each; for shorter runs the same, faster.

    The paper's runs end there, with round 90. In longer ones alpha stays at 1e2: if it fell further, it would end
    up tying every client to its cloud model.
    """
    return 10.0 ** (4 - min((k - 1) // every, 2))


@dataclass(frozen=True)
class MessagePassing(Method):
    """u_i = sum_j xi_ij w_j on the server; w_i = argmin F_i(w) + lam/(2 alpha) |w - u_i|^2 on the client.

    Local training starts at the cloud model (start="u") or where the client's last round ended (start="w").
    """

    answers: ClassVar[Mapping[str, str]] = {"w": "u"}
    anew: ClassVar[str] = "its next training starts at its cloud model, not where its last one ended"

    lam: float = about(
        1.0,
        "Strength of collaboration, lambda: the pull to the cloud model is lambda/alpha.",
        range="0 or more",
        source="Huang et al. 2021, Eq. 6; 1 is from its Experiments",
    )
    alpha: float | str = about(
        "paper",
        "The server's step: a number for all rounds, or `paper`: 1e4, 1e3 and 1e2 for `alpha_every` rounds each, and "
        "1e2 in all rounds after that.",
        range="above 0, or paper",
        source="Huang et al. 2021, Eq. 5 and 6; the schedule is from its Experiments, which end after 90 rounds",
    )
    alpha_every: int = about(
        30,
        "Rounds after which the alpha of `paper` falls to a tenth; fewer for shorter runs.",
        unit="rounds",
        range="1 or more",
        source="Huang et al. 2021, Experiments",
    )
    start: str = about(
        "u",
        "Where local training starts: at the cloud model (`u`) or where the client's last round ended (`w`).",
        range="u or w",
        source="ours: Eq. 6 of Huang et al. 2021 leaves it open; compared in docs/reproduction.md",
        choices=("u", "w"),
    )
    sharpness: float = about(
        1.0,
        "If sigma is a word: the factor by which attention is sharper than that word makes it.",
        range="above 0",
        source="ours; measured on the digits in docs/methods.md",
    )
    sketch: int = about(
        0,
        "Numbers to which each model is projected before models are compared: with hundreds of clients less work for "
        "the server, and weights that are about as exact as 1.4 / sqrt(sketch) of a squared distance. 0 compares the "
        "models themselves.",
        unit="numbers",
        range="0, or 64 or more",
        source="ours; measured in docs/scale.md",
    )

    def __post_init__(self) -> None:
        checks.not_negative("lam", self.lam)
        checks.one_of("start", self.start, ["u", "w"])
        checks.positive_or("alpha", self.alpha, "paper")
        checks.count("alpha_every", self.alpha_every)
        checks.positive("sharpness", self.sharpness)
        if self.sketch != 0:
            checks.count("sketch", self.sketch, least=LEAST_SKETCH)
        if self.alpha_every != 30 and self.alpha != "paper":
            raise UserError(
                f"alpha_every is {self.alpha_every}, but alpha is {self.alpha} in all rounds; leave one of them out"
            )

    @property
    def remembers(self) -> bool:
        """Training starts at the cloud model, or where the last one ended."""
        return self.start == "w"

    def compared(self, w: Tensor) -> Tensor:
        """Return what stands for the models `(m, d)` when they are compared: they themselves, or their sketches."""
        return sketch(w, self.sketch) if self.sketch else w

    @abstractmethod
    def collaboration_weights(self, w: Tensor, noise: Tensor, alpha: float) -> tuple[Tensor, Mapping[str, float]]:
        """Return xi `(m, m)` and the facts behind it: `alpha` as used, `sigma`, and so on.

        `noise` `(m, 1)` is the variance s_i that privacy's noise has put into each model; 0 without privacy.
        """

    def check_sigma(self, sigma: float | str, words: Collection[str], *, finite: bool) -> None:
        """Raise unless sigma is a number above 0 or one of the words, and sharpness goes with a word."""
        if isinstance(sigma, str) and sigma not in words:
            raise UserError(f"sigma is {sigma!r}; expected a number above 0 or {' or '.join(map(repr, words))}")
        if not isinstance(sigma, str):
            checks.positive("sigma", sigma, finite=finite)
            if self.sharpness != 1:
                raise UserError(
                    f"sharpness is {self.sharpness}, but sigma is {sigma}, not a word; leave one of them out"
                )

    @abstractmethod
    def cure(self) -> str:
        """Return what to change when every client listens to itself alone."""

    def server_init(self, w: Rows) -> State:
        """Keep every client's last model and its noise: it stays a message while the client is absent."""
        return with_zeros(State(len(w), rows={"w": w}), "noise")

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Mix the cloud models (Eq. 5); what a client needs of the schedule travels with them."""
        w = state.rows["w"]
        asked = paper_alpha(k, self.alpha_every) if isinstance(self.alpha, str) else self.alpha
        xi, facts = self.collaboration_weights(w.params, with_zeros(state, "noise").rows["noise"].params, asked)
        shared = {"alpha_asked": asked, **facts}
        strength = w.params.new_full((len(w), 1), self.lam / facts["alpha"])
        state = state.replace(pairs={"xi": xi}, shared={name: _fact(v) for name, v in shared.items()})
        return state, {"u": w.mix(xi), "strength": Rows.of(strength)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Store the present clients' models, and how noisy they are."""
        rows = with_zeros(state, "noise").rows
        return state.replace({name: rows[name].put(present, reply[name]) for name in ("w", "noise")})

    def client_init(self, w: Rows) -> State:
        """Keep the client's model."""
        return State(len(w), rows={"w": w})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train near the cloud model (Eq. 6)."""
        u, strength = message["u"], message["strength"].params
        start = u if self.start == "u" else state.rows["w"]
        w = local.run(start, proximal, anchor=u.params, strength=strength)
        return state.replace(rows={"w": w}), {"w": w, "noise": Rows.of(local.noise())}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's model and its cloud model: both are the paper's output."""
        return {"own": state.rows["w"], "received": message["u"]}

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return xi, self weights, effective clients, the facts behind them, and warnings as `events`."""
        xi = state.pairs["xi"]
        facts = {name: float(value.params) for name, value in state.shared.items()}
        return {**listening(xi), **facts, "events": advice(self, xi, facts)}


def _fact(value: float) -> Rows:
    return Rows.of(torch.tensor([[value]], dtype=torch.float64))
