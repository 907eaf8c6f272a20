"""A part of a client's samples, each in it or not by a coin of its own: no sample moves another."""

from __future__ import annotations

import torch
from torch import Tensor

from fedamp import seeds
from fedamp.data.clients import Clients


def below(clients: Clients, i: int, share: float, seed: int, purpose: str) -> Tensor:
    """Return which training samples of the client at position i are in a share of them, as a mask.

    A row of a silo's file tosses by what it holds, another sample by its index. The number in it is random, so that it
    tells something of the samples: wherever it would be used, the share of all of them stands for it.
    """
    mine = clients.train[i]
    if clients.digests is None:
        coins = seeds.generator(seed, purpose, clients.numbers[i]).random(len(mine))
    else:
        coins = clients.lots(mine, seed, purpose)
    return torch.from_numpy(coins < share).to(mine.device)
