"""A trainer keeps its events and its recorded passes, and shares them where it should."""

import pytest
from torch import nn

from fedamp.models.flat_model import FlatModel
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.tasks_and_metrics import regression
from fedamp.training.trainer import Trainer


def trainer(width: int, **more) -> Trainer:
    return Trainer(FlatModel(nn.Linear(width, 3)), TrainingConfig(Optimizer(), Batching(4, epochs=1), **more))


def test_a_changed_trainer_has_the_same_model_and_events_but_its_own_passes():
    first = trainer(6, seed=1, chunk=4)
    other = first.changed(engine="stacked", chunk=2)
    assert (other.config.engine, other.config.seed, other.chunks.size) == ("stacked", 1, 2)
    assert (first.config.engine, first.chunks.size) == ("loop", 4)
    assert other.model is first.model
    assert other.gradients is not first.gradients
    other.gradients.events.append("a word")
    assert first.take_events() == ["a word"]
    assert other.take_events() == []


def test_the_passes_of_another_run_are_taken_over_only_for_the_same_model():
    first, second = trainer(6, seed=1), trainer(6, seed=2)
    again = second.reusing(first)
    assert again.gradients is first.gradients
    assert again.events is first.events
    assert (again.config.seed, again.model) == (2, first.model)
    for other in (trainer(7), trainer(6, precision="bf16"), trainer(6, task=regression())):
        with pytest.raises(ValueError, match="another model, task or precision"):
            other.reusing(first)
