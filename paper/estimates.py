"""How long a run will take on the GPU that the others were run on: its sample passes, times what a pass has taken.

That is read from the fastest run of the same method and model, which had the GPU for itself; most others had several
processes beside them. It has everything in it: starting, compiling, scoring. Trials of sizes say nothing, since five
rounds are mostly starting. What was never run has the speed of docs/performance.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedamp.config import RunConfig
from paper import results
from paper.experiments import Cell

DEVICE = "NVIDIA H200"
SPEED = {"cnn": 834_000.0, "resnet18": 70_000.0}
"""Samples a second in bf16, compiled (docs/performance.md)."""

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


@dataclass(frozen=True)
class Measured:
    """What was seen: seconds for a sample pass, and the share of its rounds that a run took before it ended."""

    seconds: Mapping[tuple[str, str], float] = field(default_factory=dict)  # the least, by method and model
    shares: Mapping[tuple[str, int], list[float]] = field(default_factory=dict)  # by method and rounds

    def estimate(self, cell: Cell) -> float:
        """Return how many seconds a cell will take."""
        config = cell.config
        method, model = config.method.name, config.model.name
        share = statistics.median(self.shares.get((method, config.rounds), [1.0])) if cell.patience else 1.0
        rate = self.seconds.get((method, model), MODELS.get(method, 1) / SPEED[model])
        return share * config.rounds * passes(config) * rate


def measured(tables: tuple[str, ...]) -> Measured:
    """Return what the results of these tables say."""
    seconds: dict[tuple[str, str], float] = {}
    shares: dict[tuple[str, int], list[float]] = {}
    for table, _, result in results.read_all():
        counts = table in tables and not table.startswith("sizes")
        if counts and result["device"] == DEVICE and result["own"]["curve"]:
            config = RunConfig.of(result["description"])
            rounds, key = len(result["own"]["curve"]), (config.method.name, config.model.name)
            seconds[key] = min(result["seconds"] / (rounds * passes(config)), seconds.get(key, math.inf))
            if table.startswith("table"):
                shares.setdefault((config.method.name, config.rounds), []).append(rounds / config.rounds)
    return Measured(seconds, shares)
