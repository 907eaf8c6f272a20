"""A model that can be trained: what local training works with, from the first round to the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedamp.data.clients import Clients
from fedamp.models.flat_model import FlatModel
from fedamp.training.config import TrainingConfig
from fedamp.training.local import LocalTraining
from fedamp.training.one_at_a_time import LocalLoop
from fedamp.training.private.sample_gradients import SampleGradients
from fedamp.training.side_workers import Desk
from fedamp.training.stacked.all_at_once import LocalStack
from fedamp.training.stacked.chunks import Chunks
from fedamp.training.stacked.gradients import Gradients
from fedamp.training.tasks_and_metrics import Task


class Trainer:
    """A model, how it is trained, and what stays from round to round.

    That is: the passes that a GPU has recorded (`gradients`), how many clients fit the memory at once (`chunks`), and
    messages for the user (`events`).
    """

    def __init__(self, model: FlatModel, config: TrainingConfig, events: list[str] | None = None) -> None:
        self.model = model
        self.config = config
        self.events: list[str] = [] if events is None else events
        self.chunks = Chunks(config.chunk)
        self.gradients = Gradients(model, config.task, self.events)
        self.sample_gradients = SampleGradients(model, config.task)
        self.one_at_a_time = False  # whatever `config.workers` says: see `LocalLoop`
        self.desk = Desk()
        self._twins: list[Trainer] = []

    @property
    def task(self) -> Task:
        """What is learned."""
        return self.config.task

    def local(self, clients: Clients, k: int) -> LocalTraining:
        """Return the local training of these clients in round k."""
        return (LocalStack if self.config.engine == "stacked" else LocalLoop)(self, clients, k)

    def changed(self, **settings: Any) -> Trainer:
        """Return a trainer of the same model with other settings; the two share their events, and nothing recorded."""
        return Trainer(self.model, replace(self.config, **settings), self.events)

    def twins(self, count: int) -> list[Trainer]:
        """Return so many trainers that can work at the same time: each has a module of its own."""
        while len(self._twins) < count:
            self._twins.append(Trainer(self.model.twin(), self.config, self.events))
        return self._twins[:count]

    def reusing(self, other: Trainer) -> Trainer:
        """Return this trainer with the passes that another run of the same model has compiled and recorded.

        Many short runs on a GPU otherwise spend most of their time preparing.
        """
        mine, theirs = ((repr(one.model.module), one.task, one.config.precision) for one in (self, other))
        if mine != theirs:  # all that can be seen from here; that it is the same model, the caller promises
            raise ValueError("the other run has another model, task or precision, so its passes can't be reused")
        again = Trainer(other.model, self.config, other.events)
        again.gradients = other.gradients
        return again

    def in_chunks(self, num_clients: int, work: Callable[[slice], None]) -> None:
        """Do the work for all clients in chunks that fit the memory; a chunk that did not fit is an event."""
        self.events.extend(self.chunks.over(num_clients, work, self.gradients.graphs.clear))

    def take_events(self) -> list[str]:
        """Return what has happened since the last time."""
        events = list(self.events)
        self.events.clear()
        return events
