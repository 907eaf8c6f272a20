"""How clients train, the same in every round: what is configured. A `Trainer` does it."""

from __future__ import annotations

from dataclasses import dataclass

from fedamp.privacy.promise import Privacy
from fedamp.training.batches import Batching
from fedamp.training.optimizers import Optimizer
from fedamp.training.stacked.chunks import ALL_AT_ONCE
from fedamp.training.tasks_and_metrics import CLASSIFICATION, Task


@dataclass(frozen=True)
class TrainingConfig:
    """The optimiser, the minibatches, and the way in which they are worked through."""

    optimizer: Optimizer
    batching: Batching
    seed: int = 0  # of minibatches, dropout masks and a model's other randomness
    task: Task = CLASSIFICATION
    engine: str = "loop"  # one client after another, or "stacked": all at once
    workers: int = 1  # clients that are trained side by side, each by one thread, where it is one after another
    chunk: int = ALL_AT_ONCE  # clients that are stacked at once, at most
    precision: str = "fp32"  # or "tf32", "bf16": see the module `precision`
    draws_when_scored: bool = False  # the module draws random numbers in eval mode too
    privacy: Privacy | None = None  # how samples are protected; None: they are not
