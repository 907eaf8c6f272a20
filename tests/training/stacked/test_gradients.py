"""Gradients of many clients at once."""

import shutil

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

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


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is a GPU: test_compiled_on_a_gpu.py")
@pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_pass_gives_the_same_gradients_and_statistics():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3, 2, 1, bias=False), nn.ReLU()]
    model = FlatModel(nn.Sequential(*layers, nn.Flatten(), nn.Linear(96, 3)))
    row = model.row()
    point = row.params.repeat(3, 1) + 0.01 * torch.randn(3, model.num_params)
    x, y = torch.randn(3, 5, 1, 8, 8), torch.randint(3, (3, 5))
    arguments = point, row.buffers.repeat(3, 1), x, y, torch.zeros((3, 2), dtype=torch.int32), 1
    found = []
    counters.clear()
    for wanted in (False, True):
        model.compile(wanted)
        gradients = Gradients(model, CLASSIFICATION)
        found.append(gradients(*arguments))
        assert not gradients.events
        assert model.compiled == wanted
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
