"""AutoAMP: attentive message passing with weights that nobody has to tune.

A client's first two rounds are a probe: from one common model it trains on one half of its samples, then on the other.
From everyone's half models the server learns how far clients differ and how noisy their models are; the weights xi
minimise bias plus variance (`attention.bias_variance`) and stay. From then on it is message passing as in FedAMP:
u_i = sum_j xi_ij w_j, and each client trains near its own u_i.

Symbols: w the clients' models, u their cloud models, xi `(m, m)`, M and v as in `attention.bias_variance`.
Source: ours; the program is related to FedPAC's (Xu et al., 2023) and pFedGraph's (Ye et al., 2023).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.advice import hidden_advice, probe_advice
from fedamp.methods.attention import listening
from fedamp.methods.attention.bias_variance import FAR, collaboration
from fedamp.methods.attention.misfit import FIT, answers, judged, questions
from fedamp.methods.base import ABOUT, SPECTRUM, Local, Method, proximal, with_zeros
from fedamp.rows import Message, Rows, State

HALVES = 2
FACTS = ("noise", "noise_share", "rank")
NUMBERS = ("played", "samples", "noise", "gain", "far", "opposed", "doubted", "sharper")
"""What the server knows of each client, `(m, 1)` each."""
SHARPER = 100.0
"""Times that squared bias counts more for a client whose cloud model stops fitting it: it then listens to none but
those who are measurably the same."""


@dataclass(frozen=True)
class AutoAMP(Method):
    """u_i = sum_j xi_ij w_j with xi of least expected error; w_i = argmin F_i(w) + pull/(2 n_i) |w - u_i|^2."""

    group: ClassVar[str] = "collaboration graph"
    when: ClassVar[str] = "Not known who is alike, or whether anyone is: nothing to tune. Start here."
    scored: ClassVar[str] = "received"
    takes_home: ClassVar[str] = "chosen"
    answers: ClassVar[Mapping[str, str]] = {"w": "u"}

    pull: float = about(
        1.0,
        "Pull to the cloud model while a client trains, divided by the client's number of samples: who has few "
        "samples stays nearer.",
        range="0 or more",
        source="ours: 1 is a Gaussian prior of unit variance about u for each parameter. On validation samples (seed "
        "41) 0.01 for everyone was 0.6 points better on EMNIST practical, and 0 was 0.2 better on FMNIST IID and 1.1 "
        "on MNIST practical (there at bias_weight 1): no constant was best everywhere",
    )
    bias_weight: float = about(
        0.3,
        "How much squared bias counts against variance when weights are chosen; 1 makes the expected squared error of "
        "a model's parameters least.",
        range="above 0",
        source="ours: of 1, 0.5 and 0.3 the best on validation samples of digits (practical and Dirichlet, seeds 721 "
        "to 723) and MNIST (practical, seed 41); a bias costs less accuracy than noise of the same length",
    )

    def __post_init__(self) -> None:
        checks.not_negative("pull", self.pull)
        checks.positive("bias_weight", self.bias_weight)

    def server_init(self, w: Rows) -> State:
        """Keep the first model as the common start of all probes, and room for what clients send."""
        zero = torch.zeros((len(w), 1), dtype=torch.float64, device=w.params.device)
        rows = {"w": w, "first": w, "second": w, "losses": Rows.of(zero.repeat(1, 2))}
        rows |= dict.fromkeys(NUMBERS, Rows.of(zero))
        shared = {"start": w.mean(), **dict.fromkeys((*FACTS, SPECTRUM), Rows.of(zero[:1]))}
        return State(len(w), rows, {"xi": torch.eye(len(w)).to(zero)}, shared)

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send those who still probe the common start and which half to train on, the others their cloud models."""
        played = state.rows["played"].params
        probing = (played[:, 0] < HALVES).nonzero()[:, 0]
        u = state.rows["w"].mix(state.pairs["xi"])
        if len(probing):
            u = u.put(probing, state.shared["start"].repeat(len(probing)))
        half = torch.where(played < HALVES, played + 1, 0.0)
        asked = questions(played, with_zeros(state, *NUMBERS).rows["doubted"].params)
        return state, {"u": u, "half": Rows.of(half), "asked": Rows.of(asked)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Take up models; of those who probe the half models, whose mean is a client's first own model."""
        rows, where = with_zeros(state, *NUMBERS).rows, present.nonzero()[:, 0].to(state.rows["w"].params.device)
        played = rows["played"].params[where]
        one, two = where[played[:, 0] == 0], where[played[:, 0] == 1]
        first = rows["first"].put(one, reply["w"][played[:, 0] == 0])
        second = rows["second"].put(two, reply["w"][played[:, 0] == 1])
        whole = Rows((first[two].params + second[two].params) / 2, (first[two].buffers + second[two].buffers) / 2)
        fit = {name: rows[name].params[where] for name in FIT}
        new = judged(reply["loss"].params, fit, played) | {"samples": reply["samples"].params, "played": played + 1}
        sharper = (new["sharper"] > fit["sharper"]).any()
        new |= {"noise": rows["noise"].params[where] + reply["noise"].params.where(played < HALVES, 0)}
        w = rows["w"].put(where, reply["w"]).put(two, whole)
        kept = {name: rows[name].put(where, Rows.of(value)) for name, value in new.items()}
        state = state.replace({"w": w, "first": first, "second": second, **kept})
        return self.who_listens_to_whom(state) if len(two) or sharper else state

    def who_listens_to_whom(self, state: State) -> State:
        """Return the state with the weights of all who have probed; the others keep to themselves.

        Late clients probe from the same start as everyone did, so that their half models compare with the others'.
        """
        rows, xi = with_zeros(state, *NUMBERS).rows, torch.eye(state.num_clients).to(state.pairs["xi"])
        done = (rows["played"].params[:, 0] >= HALVES).nonzero()[:, 0]
        a, b, samples, noise = (rows[name].params[done] for name in ("first", "second", "samples", "noise"))
        bias_weight = self.bias_weight * SHARPER ** rows["sharper"].params[done, 0].clamp(max=1)
        found = collaboration(a, b, state.shared["start"].params, samples[:, 0], bias_weight, noise[:, 0])
        xi[done[:, None], done] = found.xi
        kept = {name: rows[name].put(done, Rows.of(value[:, None])) for name, value in found.by_client.items()}
        return state.replace(kept, {"xi": xi}, {name: Rows.of(value) for name, value in found.facts.items()})

    def server_leave(self, state: State, stay: Tensor) -> State:
        """Choose the weights of those who stay anew, from their own half models."""
        state = state.take(stay)
        return self.who_listens_to_whom(state) if (state.rows["played"].params >= HALVES).any() else state

    def client_init(self, w: Rows) -> State:
        """Keep the client's model: it is scored, and never trained from."""
        return State(len(w), rows={"w": w})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train near the cloud model; in a probe, from the common start on one half of the samples.

        Whose samples are protected answers no question about its fit: `attention.misfit`.
        """
        u, half = message["u"], message["half"].params
        strength = torch.where(half > 0, 0.0, self.pull / local.sizes).to(u.params)
        answer = answers(message["asked"].params, u, strength, local.at_home())
        w = local.part(half).run(u, proximal, anchor=u.params, strength=strength)
        noise = local.noise()
        numbers = {"loss": answer.where(noise == 0, 0), "samples": local.sizes.double(), "noise": noise}
        return state.replace(rows={"w": w}), {"w": w, **{name: Rows.of(value) for name, value in numbers.items()}}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's model and its cloud model; who still probes has none yet, and keeps to its own."""
        w, u, probing = state.rows["w"], message["u"], message["half"].params[:, 0] > 0
        return {"own": w, "received": u.put(probing, w[probing]) if probing.any() else u}

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return xi and what it came from: the spectrum of M, its rank, the noise, and each client's expected gain."""
        rows, facts = state.rows, {name: float(state.shared[name].params) for name in FACTS}
        return {
            **listening(state.pairs["xi"]),
            "expected_gain": rows["gain"].params[:, 0],
            "opposed": rows["opposed"].params[:, 0],
            **{SPECTRUM: state.shared[SPECTRUM].params[0].tolist(), **facts},
            ABOUT: probe_advice(rows["far"].params[:, 0], FAR, rows["sharper"].params[:, 0]),
            "events": hidden_advice(rows["noise"].params / HALVES**2, facts),
        }
