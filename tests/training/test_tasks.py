"""How a model's output is judged."""

import torch
from torch import nn
from torch.func import vmap

from fedamp.training.tasks_and_metrics import CLASSIFICATION, regression


def test_stacked_losses_are_those_of_each_batch():
    output, y = torch.randn(3, 5, 4), torch.randint(4, (3, 5))
    torch.testing.assert_close(CLASSIFICATION.stacked_loss(output, y), vmap(CLASSIFICATION.loss)(output, y))
    torch.testing.assert_close(CLASSIFICATION.loss(output[0], y[0]), nn.functional.cross_entropy(output[0], y[0]))
    output, y = torch.randn(3, 5, 1), torch.randn(3, 5)
    torch.testing.assert_close(regression().stacked_loss(output, y), vmap(regression().loss)(output, y))
