"""IFCA: several models; each client takes the one that fits its samples best, and trains it with those who took it too.

Symbols: theta_j the model of cluster j, S_j the present clients that chose it, n_i samples, F_i a client's loss.
    choice_i = argmin_j F_i(theta_j),  theta_i = training from theta_{choice_i},
    theta_j <- sum_{i in S_j} n_i theta_i / sum_{i in S_j} n_i; a cluster that nobody chose stays.

Source: Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020, Algorithm 1, option II
(model averaging). It averages without weights, for its clients have equally many samples. Where they have not, on
FEMNIST, the authors' code weighs by samples, and so do we: with one cluster this is FedAvg. The authors begin with
models of different random seeds and take several restarts; on FEMNIST they first train each on clients that are drawn
at random. Here cluster 0 begins at the first model and the others around it, and `restart` is for the restarts. Their
code chooses again on the test samples before it scores; here training samples alone choose.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.attention import listening
from fedamp.methods.base import Local
from fedamp.methods.fedavg import FedAvg
from fedamp.rows import Message, Rows, State

LEAST = 1e-2
"""How far clusters begin apart, in each parameter, if all of the first model is 0: there is no spread to go by."""


@dataclass(frozen=True)
class IFCA(FedAvg):
    """FedAvg within clusters that clients choose anew in each round, each by its own loss."""

    group: ClassVar[str] = "clusters"
    hands_out_models: ClassVar[bool] = True  # a cluster that one client alone chose has that client's model
    when: ClassVar[str] = "Clients come in a few groups, their number is about known, and a few starts can be tried."
    answers: ClassVar[Mapping[str, str]] = {"w": "w*"}

    clusters: int = about(
        4,
        "Number of clusters, and so of models that each client gets in a round.",
        range="1 or more",
        source="Ghosh et al. 2020, Algorithm 1, k; its experiments have 2, 3 and 4, as many as there are groups",
    )
    apart: float = about(
        1.0,
        "How far from the first model the clusters begin, all but the first, as a multiple of its parameters' spread.",
        range="above 0",
        source="ours: 1 is about as far as another random first model, which is what the authors take",
    )
    restart: int = about(
        0,
        "Number of the start: another one begins the clusters elsewhere.",
        range="0 or more",
        source="Ghosh et al. 2020, Experiments, take several random restarts",
    )

    def __post_init__(self) -> None:
        checks.count("clusters", self.clusters)
        checks.positive("apart", self.apart)
        checks.count("restart", self.restart, least=0)

    def server_init(self, w: Rows) -> State:
        """Begin at the mean of the first models, and around it; nobody has a share in a cluster's mean yet."""
        mean, none = w.mean(), w.params.new_zeros((len(w), self.clusters), dtype=torch.float64)
        # Of single models: where each client has its own, their mean is much closer to 0 than they are.
        size = self.apart * (float(w.params.std(dim=1, correction=0).mean()) or LEAST)
        draws = torch.Generator().manual_seed(self.restart)
        shared = {"w0": mean}
        for j in range(1, self.clusters):
            noise = torch.randn(mean.params.shape, generator=draws, dtype=torch.float64).to(mean.params)
            shared[f"w{j}"] = Rows(mean.params + size * noise, mean.buffers)
        rows = {"choice": none, "share": none, "mean": none[:, :1]}
        shared["means"] = Rows.of(none[:1, :1])
        return State(len(w), {name: Rows.of(each) for name, each in rows.items()}, shared=shared)

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send everyone all models, and its last choice: who has lost it still knows its cluster."""
        models = {f"w{j}": state.shared[f"w{j}"].repeat(state.num_clients) for j in range(self.clusters)}
        # Not by the name that it has in the reply, which would then be measured from it, as a model is.
        return state, {**models, "remembered": state.rows["choice"]}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Average the present clients of each cluster, each with its share of the cluster's samples."""
        choice = one_of(reply["choice"].params)  # whatever was sent, it is one cluster
        weights = (choice * reply["samples"].params).T
        samples = weights.sum(1)
        means = {f"w{j}": reply["w"].mix(weights[j : j + 1] / n) for j, n in enumerate(samples) if n > 0}
        kept = state.rows["share"].params.where(samples == 0, 0)
        share = Rows.of(kept).put(present, Rows.of(kept[present] + (weights.T / samples.clamp(min=1))))
        means["means"] = Rows.of(state.shared["means"].params + 1)
        mean = state.rows["mean"].put(present, means["means"].repeat(len(choice)))
        rows = {"choice": state.rows["choice"].put(present, Rows.of(choice)), "share": share, "mean": mean}
        return state.replace(rows, shared=means)

    def client_init(self, w: Rows) -> State:
        """Keep the client's model, which is never trained from, and that it has not chosen yet."""
        none = w.params.new_zeros((len(w), self.clusters), dtype=torch.float64)
        return State(len(w), rows={"w": w, "choice": Rows.of(none)})

    def client_update(self, state: State, message: Message, local: Local) -> tuple[State, Message]:
        """Choose the model of least loss and train it; reply with the result, the choice and the number of samples."""
        losses = torch.cat([local.loss(message[f"w{j}"]) for j in range(self.clusters)], dim=1)
        choice = Rows.of(one_of(-losses.nan_to_num(nan=torch.inf)))  # a loss that is no number is the worst
        w = self.train(self.cluster_model(choice.params, message), local)
        samples = Rows.of(local.sizes.to(torch.float64))
        return state.replace(rows={"w": w, "choice": choice}), {"w": w, "choice": choice, "samples": samples}

    def client_models(self, state: State, message: Message) -> dict[str, Rows]:
        """Score the fine-tuned model, and that of the client's cluster."""
        # Its own choice comes first; who has none has what the server remembers, or else the first cluster.
        choice = 2 * state.rows["choice"].params + message["remembered"].params
        return {"own": state.rows["w"], "received": self.cluster_model(choice, message)}

    def cluster_model(self, choice: Tensor, message: Message) -> Rows:
        """Return the model of each client's cluster."""
        model, cluster = message["w0"], choice.argmax(1)
        for j in range(1, self.clusters):
            mine = cluster == j
            model = model.put(mine, message[f"w{j}"][mine]) if mine.any() else model
        return model

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return the weights of the mean that each client got, its cluster, and a warning if there is only one."""
        choice, share = state.rows["choice"].params, in_means(state)
        xi = one_of(choice) @ torch.where(share.sum(0) > 0, share / share.sum(0), 1 / len(share)).T
        same = f"all clients chose one of {self.clusters} clusters: this is FedAvg by another name. Try another restart"
        alike = self.clusters > 1 and len(choice) > 1 and bool((choice.sum(0) == len(choice)).any())
        return {**listening(xi), "cluster": choice.argmax(1).double(), "events": [same] if alike else []}


def in_means(state: State) -> Tensor:
    """Return each client's share in the means that are sent; a newcomer's, whose mean was not kept, is none."""
    kept = state.rows["mean"].params <= state.shared["means"].params
    return state.rows["share"].params * kept


def one_of(values: Tensor) -> Tensor:
    """Return 1 at the largest of each row, the first of equal ones, and 0 elsewhere, `(n, clusters)` in float64."""
    return one_hot(values.argmax(1), values.shape[1]).to(torch.float64)
