"""What torch.compile makes of a pass on a GPU, where it has kernels and windows of its own. Skipped without one."""

import pytest
import torch
from torch._dynamo.utils import counters

from fedamp.models.flat_model import FlatModel
from fedamp.models.zoo import cnn, cnn_small, resnet18
from fedamp.training.precision import use_precision
from fedamp.training.stacked.gradients import Gradients
from fedamp.training.tasks_and_metrics import CLASSIFICATION

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch.compile imports what torch calls deprecated
]
NETS = {"cnn": (cnn, (1, 16, 16)), "cnn-small": (cnn_small, (1, 16, 16)), "resnet18": (resnet18, (3, 16, 16))}


@pytest.mark.parametrize("net", NETS)
def test_a_compiled_pass_is_one_graph_and_as_near_to_exact_gradients_as_the_plain_one(net):
    build, shape = NETS[net]
    torch.manual_seed(0)
    model = FlatModel(build(shape, 10).to("cuda"))
    row = model.row()
    point = row.params.repeat(3, 1) * (1 + 0.01 * torch.randn(3, model.num_params, device="cuda"))
    x, y = torch.randn(3, 40, *shape, device="cuda"), torch.randint(10, (3, 40), device="cuda")
    arguments = point, row.buffers.repeat(3, 1), x, y, torch.zeros((3, 2), dtype=torch.int32, device="cuda"), 1

    def gradient(precision: str, compiled: bool) -> torch.Tensor:
        model.compile(compiled)
        gradients = Gradients(model, CLASSIFICATION)
        with use_precision(precision, torch.device("cuda")):
            found = gradients(*arguments)[0].clone()
        assert not gradients.events
        return found

    exact = gradient("fp32", False)
    plain = (gradient("bf16", False) - exact).norm() / exact.norm()
    torch._dynamo.reset()
    counters.clear()
    compiled = (gradient("bf16", True) - exact).norm() / exact.norm()
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert 0 < compiled < max(1.5 * plain, 0.01)
    assert plain < 0.5  # a ResNet's gradients in bf16 are 0.3 off here
