"""How long a run will take on the GPU that the others were run on: its sample passes, times what a pass has taken.

A measured rate has everything in it: compiling in the first round, scoring, and other processes on the same GPU, which
most runs had beside them. So an estimate is rather too long than too short. What was never run has the speed of
docs/performance.md. Trials of sizes say nothing: their five rounds went by mostly in starting, with others beside them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedamp.config import RunConfig
from paper import results
from paper.experiments import Cell

DEVICE = "NVIDIA H200"
SPEED = {"cnn": 747_000.0, "resnet18": 65_000.0}
"""Samples a second in bf16, ResNet18 compiled (docs/performance.md)."""

MODELS = {"apfl": 2}
"""How many models a method trains on each minibatch, if not one."""


def passes(config: RunConfig) -> float:
    """Return how many samples are trained on in a round, over all clients and epochs."""
    setting = config.setting.parameters
    if "sizes" in setting:
        groups = len(setting["sizes"])
        clients = setting.get("group_clients") or [config.clients / groups] * groups
        samples = sum(size * many for size, many in zip(setting["sizes"], clients, strict=True))
    else:
        samples = setting["samples"] * config.clients
    return float(samples * (1 - config.validation) * (config.epochs or 1))


Key = tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """What was seen: seconds for a sample pass, and the share of its rounds that a run took before it ended."""

    seconds: Mapping[Key, list[float]] = field(default_factory=dict)  # by method, data and setting; by method and data
    shares: Mapping[tuple[str, int], list[float]] = field(default_factory=dict)  # by method and rounds

    def estimate(self, cell: Cell) -> float:
        """Return how many seconds a cell will take."""
        config = cell.config
        method, model = config.method.name, config.model.name
        share = statistics.median(self.shares.get((method, config.rounds), [1.0])) if cell.patience else 1.0
        never_run = [MODELS.get(method, 1) / SPEED[model]]
        keys = _keys(config)
        rate = statistics.median(next((self.seconds[key] for key in keys if key in self.seconds), never_run))
        return share * config.rounds * passes(config) * rate


def measured(tables: tuple[str, ...]) -> Measured:
    """Return what the results of these tables say."""
    seconds: dict[Key, list[float]] = {}
    shares: dict[tuple[str, int], list[float]] = {}
    for table, _, result in results.read_all():
        counts = table in tables and not table.startswith("sizes")
        if counts and result["device"] == DEVICE and result["own"]["curve"]:
            config = RunConfig.of(result["description"])
            rounds = len(result["own"]["curve"])
            for key in _keys(config):
                seconds.setdefault(key, []).append(result["seconds"] / (rounds * passes(config)))
            if table.startswith("table"):
                shares.setdefault((config.method.name, config.rounds), []).append(rounds / config.rounds)
    return Measured(seconds, shares)


def _keys(config: RunConfig) -> tuple[Key, Key]:
    """Return under what a run's speed is kept: the most similar runs first."""
    method: Any = config.method.name
    return (method, config.data, config.setting.name), (method, config.data)
