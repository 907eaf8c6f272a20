"""Samples whose gradients are long and point in directions of their own: the easiest to notice among a client's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedamp import checks, seeds
from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.runs.material import Material

FAR = 4.0
"""Standard deviations between a canary's target and the mean, in a regression."""


@dataclass(frozen=True)
class Canaries:
    """Samples for an audit, and which of them one client trains on."""

    x: Tensor  # (m, ...), as the pool's
    y: Tensor  # (m,)
    inside: NDArray[np.bool_]  # (m,) the coins: whoever guesses does not know them

    def __len__(self) -> int:
        return len(self.x)


def make_canaries(material: Material, count: int, seed: int) -> Canaries:
    """Return canaries that look like nobody's sample, and a fair coin for each.

    Each input is the lowest or the highest value that the pool has there, at random, so that on average it is the
    pool's mean: inputs of two canaries are then long and have next to nothing in common. Labels are random classes; in
    a regression they are far above or far below the mean.
    """
    checks.count("canaries", count, least=2)
    pool, stream = material.clients, seeds.generator(seed, "canaries")
    x = pool.x.double().cpu().flatten(1).numpy()
    low, high, mean = x.min(0), x.max(0), x.mean(0)
    share = np.divide(mean - low, high - low, out=np.zeros_like(mean), where=high > low)
    drawn = np.where(stream.random((count, x.shape[1])) < share, high, low)
    if material.task.name == "regression":
        y = pool.y.double().cpu()
        targets = y.mean().item() + FAR * y.std().item() * stream.choice([-1.0, 1.0], count)
    else:
        targets = stream.integers(0, material.num_outputs, count).astype(np.float64)
    return Canaries(
        torch.from_numpy(drawn).reshape(count, *pool.x.shape[1:]).to(pool.x),
        torch.from_numpy(targets).to(pool.y),
        seeds.generator(seed, "coins of canaries").random(count) < 0.5,
    )


def with_canaries(clients: Clients, canaries: Canaries, place: int) -> Clients:
    """Return the clients, of whom the one at this place also trains on the canaries whose coins say so."""
    if not 0 <= place < len(clients):
        raise UserError(f"the client to audit is {place}; expected a number from 0 to {len(clients) - 1}")
    if clients.class_weights is not None:
        raise ValueError("class weights count a client's samples; expected canaries to be added before")
    first, train = len(clients.x), list(clients.train)
    chosen = torch.from_numpy(np.flatnonzero(canaries.inside) + first)
    train[place] = torch.cat([train[place], chosen.to(train[place].device)])
    everyone = torch.arange(first + len(canaries), device=clients.x.device)
    copy_of = None if clients.copy_of is None else torch.cat([clients.copy_of, everyone[first:]])
    digests = clients.digests
    if digests is not None:
        digests += tuple(f"canary {number}".encode() for number in range(len(canaries)))
    return replace(
        clients,
        x=torch.cat([clients.x, canaries.x.to(clients.x.device)]),
        y=torch.cat([clients.y, canaries.y.to(clients.y.device)]),
        train=tuple(train),
        copy_of=copy_of,
        digests=digests,
    )
