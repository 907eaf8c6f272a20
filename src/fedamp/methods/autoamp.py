"""AutoAMP: attentive message passing with weights that nobody has to tune.

The first two rounds of a client are a probe: it trains from one common model on one half of its samples, then on the
other. From the two half models of all clients the server learns who differs how much, and how noisy models are
(`attention.bias_variance`); the weights xi minimise bias plus variance. From then on it is message passing as in
FedAMP: u_i = sum_j xi_ij w_j, and each client trains near its own u_i.

Symbols: w the clients' models, u their cloud models, xi `(m, m)` the collaboration weights. Ours; the program is
related to FedPAC's (Xu et al., 2023) and pFedGraph's (Ye et al., 2023).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.attention import effective_clients
from fedamp.methods.attention.bias_variance import expected_error, least_error_weights, signal_and_noise
from fedamp.methods.base import Local, Method, proximal
from fedamp.rows import Message, Rows, State

HALVES = 2


@dataclass(frozen=True)
class AutoAMP(Method):
    """u_i = sum_j xi_ij w_j with xi of least expected error; w_i = argmin F_i(w) + pull/2 |w - u_i|^2."""

    scored: ClassVar[str] = "received"
    answers: ClassVar[Mapping[str, str]] = {"w": "u"}

    pull: float = about(
        0.01,
        "Pull to the cloud model while a client trains.",
        range="0 or more",
        source="ours: as FedProx's mu; 0.01 was better than 0, 0.1 and 0.3 on EMNIST and FMNIST practical",
    )
    least_gain: float = about(
        0.1,
        "Share of its noise that a client must expect to lose by listening to others; else it keeps to itself.",
        range="0 to 1",
        source="ours: differences grow over the rounds, so that a small gain at first is none in the end",
    )

    def __post_init__(self) -> None:
        checks.not_negative("pull", self.pull)
        checks.share("least_gain", self.least_gain)

    def server_init(self, w: Rows) -> State:
        """Keep the first model as the common start of all probes, and room for what they give."""
        nothing = Rows.of(torch.zeros((len(w), 1), dtype=torch.float64, device=w.params.device))
        rows = {"w": w, "first": w, "second": w, "probed": nothing, "samples": nothing}
        return State(len(w), rows=rows, shared={"start": w.mean()})

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send the common start to those who still probe, and the others their cloud models."""
        w, probed = state.rows["w"], state.rows["probed"].params[:, 0]
        done = (probed == HALVES).nonzero()[:, 0]
        xi, facts = self.weights(state, done)
        u = w.mix(xi)
        probing = (probed < HALVES).nonzero()[:, 0]
        if len(probing):
            u = u.put(probing, state.shared["start"].repeat(len(probing)))
        half = torch.where(probed < HALVES, probed + 1, 0).to(w.params.dtype)[:, None]
        strength = torch.where(half > 0, 0.0, self.pull).to(w.params)
        shared = {name: Rows.of(torch.tensor([[value]], dtype=torch.float64)) for name, value in facts.items()}
        state = state.replace(pairs={"xi": xi}, shared=shared)
        return state, {"u": u, "strength": Rows.of(strength), "half": Rows.of(half)}

    def weights(self, state: State, done: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Return xi `(m, m)` over the clients that have probed; the others keep to themselves."""
        m = state.num_clients
        xi = torch.eye(m, dtype=torch.float64, device=state.rows["w"].params.device)
        if len(done) < 2:
            return xi, {"noise": 0.0, "rank": 0.0}
        a, b = (state.rows[name].params[done] for name in ("first", "second"))
        signal, noise, values = signal_and_noise(a, b, state.rows["samples"].params[done, 0])
        mixed = least_error_weights(signal, noise)
        gain = 1 - expected_error(mixed, signal, noise) / noise
        alone = (gain < self.least_gain) & (noise > 0)
        mixed[alone] = torch.eye(len(done), dtype=torch.float64, device=mixed.device)[alone]
        xi[done[:, None], done] = mixed
        rank = int((torch.linalg.eigvalsh(signal) > 1e-9 * values.abs().max()).sum())
        return xi, {"noise": float(noise.mean()), "rank": float(rank)}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Take up models, and of those who probe the half models; their mean is a client's first own model."""
        rows, where = state.rows, present.nonzero()[:, 0].to(state.rows["w"].params.device)
        probed = rows["probed"].params[where, 0]
        one, two = where[probed == 0], where[probed == 1]
        first = rows["first"].put(one, reply["w"][probed == 0])
        second = rows["second"].put(two, reply["w"][probed == 1])
        w = rows["w"].put(where, reply["w"])
        mean = Rows((first[two].params + second[two].params) / 2, (first[two].buffers + second[two].buffers) / 2)
        counted = rows["probed"].put(where, Rows.of((probed + 1).clamp(max=HALVES)[:, None]))
        samples = rows["samples"].put(where, reply["samples"])
        return state.replace(
            rows={"w": w.put(two, mean), "first": first, "second": second, "probed": counted, "samples": samples}
        )

    def client_init(self, w: Rows) -> State:
        """Keep the client's model: it is scored, and never trained from."""
        return State(len(w), rows={"w": w})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Train near the cloud model; in a probe, from the common start on one half of the samples."""
        u, strength = message["u"], message["strength"].params
        w = local.part(message["half"].params).run(u, proximal, anchor=u.params, strength=strength)
        samples = Rows.of(local.sizes.to(torch.float64))
        return state.replace(rows={"w": w}), {"w": w, "samples": samples}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the client's model and its cloud model."""
        return {"own": state.rows["w"], "received": message["u"]}

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return xi, self weights, effective clients, the noise, and how many directions clients differ in."""
        xi = state.pairs["xi"]
        facts = {name: float(state.shared[name].params) for name in ("noise", "rank")}
        return {
            "xi": xi,
            "self_weight": xi.diagonal(),
            "effective_clients": effective_clients(xi),
            **facts,
            "events": [],
        }
