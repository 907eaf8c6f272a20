"""CFL: FedAvg that splits its clients in two wherever their updates disagree, again and again.

Symbols: c a cluster, theta_c its model, d_i = w_i - theta_c a client's update, a_ij = cos(d_i, d_j), n_i samples.
    theta_c <- sum_{i in c} n_i w_i / n_c
    c is split if |sum_i n_i d_i / n_c| < eps1 and max_i |d_i| > eps2: at rest, while a client would still move;
    the halves are those whose most similar pair, of one from each, is least similar: min over halves of
    a_cross = max a_ij, and sqrt((1 - a_cross) / 2) > gamma_max.

Source: Sattler, Mueller, Samek, "Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization under
Privacy Constraints", IEEE TNNLS 2020, its algorithms of the optimal bipartition and of CFL. The authors' code averages
without weights, leaves gamma_max out, cuts by complete linkage, which need not find the optimum, and splits after
round 20, by lengths of 0.4 and 1.6 that fit its model and optimiser. Here eps1 and eps2 are relative unless `limits`
says otherwise, for a client's update under Adam hardly gets shorter. As in their code, a round that splits averages
within the new clusters. The longest mean update is of all rounds so far: a wild first round keeps a cluster together.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedamp import checks
from fedamp.fields import about
from fedamp.methods.attention import cosines, listening
from fedamp.methods.bipartition import bipartition
from fedamp.methods.fedavg import FedAvg
from fedamp.methods.ifca import in_means
from fedamp.rows import Message, Rows, State

MEASURED = "Sattler et al. 2020, but relative: ours, by validation on the digits, practical and iid, seeds 7 to 9"
LEAST = 3
"""Clients that a cluster has at least if it is split, as in the authors' code."""


@dataclass(frozen=True)
class CFL(FedAvg):
    """FedAvg within clusters that begin as one; cluster 0 is who was never split off, and where late clients begin."""

    group: ClassVar[str] = "clusters"
    when: ClassVar[str] = "Clients come in groups, and not even their number is known."

    eps1: float = about(
        0.7,
        "A cluster is at rest if its mean update is shorter than this: as a share of its longest client's update.",
        range="0 or more; 0 never splits",
        source=MEASURED,
    )
    eps2: float = about(
        1.25,
        "A client would still move if its update is longer than this: as a multiple of the longest mean update of any "
        "cluster so far.",
        range="0 or more",
        source=MEASURED,
    )
    gamma_max: float = about(
        0.0,
        "How far apart two halves must be: sqrt((1 - a) / 2), where a is the largest cosine between two updates of "
        "different halves.",
        range="0 to 1",
        source="Sattler et al. 2020; 0, which asks for nothing, is what the authors' code does",
    )
    limits: str = about(
        "relative",
        "Whether eps1 and eps2 are `relative`, or lengths of updates as they are (`absolute`).",
        range="relative or absolute",
        source="Sattler et al. 2020 have absolute ones; 0.4 and 1.6 in the authors' code",
        choices=("relative", "absolute"),
    )

    def __post_init__(self) -> None:
        checks.not_negative("eps1", self.eps1)
        checks.not_negative("eps2", self.eps2)
        checks.share("gamma_max", self.gamma_max)
        checks.one_of("limits", self.limits, ["relative", "absolute"])

    def server_init(self, w: Rows) -> State:
        """Begin with one cluster, at the mean of the first models."""
        zero = Rows.of(w.params.new_zeros((len(w), 1), dtype=torch.float64))
        rows = {"w": w.mean().repeat(len(w)), "cluster": zero, "share": zero, "mean": zero}
        return State(len(w), rows, shared={"w": w.mean(), **dict.fromkeys(("longest", "means"), zero[:1])})

    def server_send(self, state: State, k: int) -> tuple[State, Message]:
        """Send everyone the model of its cluster; that of cluster 0 is shared, so that late clients have it too."""
        others, w = state.rows["cluster"].params[:, 0] > 0, state.shared["w"].repeat(state.num_clients)
        return state, {"w": w.put(others, state.rows["w"][others]) if others.any() else w}

    def server_receive(self, state: State, reply: Message, present: Tensor) -> State:
        """Split clusters in two where it is time; then average the present clients of each, by samples."""
        samples = reply["samples"].params
        who = present.nonzero()[:, 0].to(samples.device)
        updates = reply["w"].params - self.server_send(state, 0)[1]["w"][who].params
        cluster, longest = self.regrouped(state, who, updates, samples)
        shared = {"longest": Rows.of(longest), "means": Rows.of(state.shared["means"].params + 1)}
        w, share = state.rows["w"], state.rows["share"].params.clone()
        for c in numbers(cluster[who]):
            mine, everyone = cluster[who] == c, cluster == c
            share[everyone] = 0
            share[who[mine]] = weights(samples[mine]).T
            model = reply["w"][mine].mix(weights(samples[mine]))
            shared |= {"w": model} if c == 0 else {}
            w = w.put(everyone, model.repeat(int(everyone.sum()))) if c > 0 else w
        rows = {"w": w, "cluster": Rows.of(cluster[:, None]), "share": Rows.of(share)}
        return state.replace(
            rows | {"mean": state.rows["mean"].put(who, shared["means"].repeat(len(who)))}, shared=shared
        )

    def regrouped(self, state: State, who: Tensor, updates: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return everyone's cluster `(m,)` after splits by the updates of those who are here, and the longest mean."""
        cluster, longest = state.rows["cluster"].params[:, 0].clone(), state.shared["longest"].params
        parts = [cluster[who] == c for c in numbers(cluster[who])]
        means = [Rows.of(updates[mine]).mix(weights(samples[mine])).params.norm().double() for mine in parts]
        known, longest = bool(longest > 0), torch.stack([longest[0, 0], *means]).max()[None, None]
        for mine, mean in zip(parts, means, strict=True):
            if known or self.limits == "absolute":  # a first round can't tell whether clients slow down
                leaves = self.leaving(updates[mine], samples[mine], float(mean), float(longest))
                cluster[who[mine][leaves]] = cluster.max() + 1
        return cluster, longest

    def leaving(self, updates: Tensor, samples: Tensor, mean: float, longest: float) -> Tensor:
        """Return who of a cluster's n clients leaves it, `(n,)`: the half with fewer samples, or nobody.

        Absent clients stay, and so are with the larger half. Of halves with as many samples, the one that moves less
        leaves: not the first or the last, for clients have no order.
        """
        lengths = updates.norm(dim=1).double()
        length, nobody = float(lengths.max()), torch.zeros_like(lengths, dtype=torch.bool)
        rest, still = (length, longest) if self.limits == "relative" else (1.0, 1.0)
        if len(updates) < LEAST or mean >= self.eps1 * rest or length <= self.eps2 * still:
            return nobody
        half, cross = bipartition(cosines(updates))
        if math.sqrt((1 - cross) / 2) <= self.gamma_max:
            return nobody
        size = [(float(samples[side].sum()), float(lengths[side].sum())) for side in (half, ~half)]
        return half if size[0] < size[1] else ~half

    def diagnostics(self, state: State) -> dict[str, Any]:
        """Return the weights of the mean that each client got, its cluster, and how many clusters there are."""
        cluster, share = state.rows["cluster"].params[:, 0], in_means(state)[:, 0]
        same = (cluster[:, None] == cluster).double()
        # Before a cluster's first mean all of its clients count alike.
        xi = torch.where((same @ share)[:, None] > 0, same * share, same)
        count = float(len(numbers(cluster)))
        return {**listening(xi / xi.sum(1, keepdim=True)), "cluster": cluster, "clusters": count, "events": []}


def numbers(cluster: Tensor) -> list[float]:
    """Return the numbers of the clusters that there are, in order."""
    return sorted(set(cluster.tolist()))


def weights(samples: Tensor) -> Tensor:
    """Return each client's share of the samples `(n, 1)`, as weights of a mean `(1, n)`."""
    return samples.T / samples.sum()
