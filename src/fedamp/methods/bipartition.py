"""The best cut of clients in two, by how similar they are: for CFL.

Source: Sattler, Mueller, Samek, "Clustered Federated Learning", IEEE TNNLS 2020, its algorithm of the optimal
bipartition, which merges the most similar pairs first, until two clusters are left. This is the same, in another order.
"""

import math

import torch
from torch import Tensor


def bipartition(similarity: Tensor) -> tuple[Tensor, float]:
    """Return the two halves of n clients with the least largest similarity across, as a mask, and that similarity.

    A set that begins with one client takes in the outsider most similar to any of its members, until it has all: this
    is a maximum spanning tree. Any two halves are joined by an edge of it, so none does better than its weakest edge;
    and those on either side of that one do as well, for all links out of the set were at most as strong. Who was taken
    in after it is one half: a stronger link from the set before to any of them would have come first.
    """
    near, order, links = similarity[0].clone(), [0], []
    for _ in range(len(similarity) - 1):
        near[order[-1]] = -math.inf
        links.append(float(near.max()))
        order.append(int(near.argmax()))
        near = torch.where(near.isinf(), near, near.maximum(similarity[order[-1]]))
    weakest = min(range(len(links)), key=links.__getitem__)
    half = torch.zeros(len(similarity), dtype=torch.bool, device=similarity.device)
    half[order[weakest + 1 :]] = True
    return half, links[weakest]
