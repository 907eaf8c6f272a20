"""A client of Flower's simulation in a plain loop, as benchmarks/flower.py times it.

In a module of its own, so that a worker imports it, and reads the samples once instead of being sent them each round.
"""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from flwr.client import NumPyClient
from same_work import LR, Work


@cache
def read(path: Path) -> tuple[Work, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Return the work that was saved, and each client's samples."""
    torch.set_num_threads(1)
    work: Work = torch.load(path, weights_only=False)
    return work, work.samples()


class OneClient(NumPyClient):
    """Takes the model that it is sent, and one pass of plain SGD over its samples."""

    def __init__(self, path: Path, number: int) -> None:
        self.work, samples = read(path)
        self.x, self.y = samples[number]

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        """Return the trained parameters."""
        module = copy.deepcopy(self.work.module)
        with torch.no_grad():
            for own, given in zip(module.parameters(), parameters, strict=True):
                own.copy_(torch.from_numpy(given))
        optimizer = torch.optim.SGD(module.parameters(), lr=LR)
        for chosen in torch.randperm(len(self.y)).split(self.work.batch):
            optimizer.zero_grad()
            F.cross_entropy(module(self.x[chosen]), self.y[chosen]).backward()
            optimizer.step()
        return [p.detach().numpy() for p in module.parameters()], len(self.y), {}
