"""Gradients of many clients at once."""

import pytest
import torch

from fedamp.models.flat_model import FlatModel
from fedamp.models.zoo import cnn_small
from fedamp.training.stacked.gradients import Gradients
from fedamp.training.tasks_and_metrics import CLASSIFICATION


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile imports what torch itself calls deprecated
def test_compiling_that_fails_does_not_end_a_run(monkeypatch):
    model = FlatModel(cnn_small((8, 8), 3))
    model.compile(True)
    assert model.compiled

    def broken(*args, **kwargs):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(model._stacked.compiled, "forward", broken)
    model._stacked.compiled._compiled_call_impl = None
    gradients = Gradients(model, CLASSIFICATION)
    row = model.row()
    x, y = torch.randn(2, 4, 8, 8), torch.randint(3, (2, 4))
    arguments = row.params.repeat(2, 1), row.buffers.repeat(2, 1), x, y, torch.zeros((2, 2), dtype=torch.int32), 1
    gradient, _, _ = gradients(*arguments)
    assert not model.compiled
    assert "no compiler here" in gradients.events[0]
    assert "--compile off" in gradients.events[0]
    torch.testing.assert_close(gradient, gradients._vmapped(*arguments)[0], rtol=1e-4, atol=1e-6)
