"""Optimisers step as torch's do, and refuse what makes no sense."""

import pytest
import torch

from fedamp.training.optimizers import Optimizer


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"name": "adamw"}, "choose from adam, sgd"),
        ({"lr": 0}, "lr is 0"),
        ({"momentum": 0.9}, "use sgd"),
        ({"name": "sgd", "momentum": 1}, "less than 1"),
        ({"weight_decay": -1}, "weight_decay is -1"),
    ],
)
def test_bad_optimizer(wrong, word):
    with pytest.raises(ValueError, match=word):
        Optimizer(**wrong)


@pytest.mark.parametrize("view", ["expanded", "transposed", "float64"])
def test_adam_takes_any_direction(view):
    """The fused kernel reads memory as it lies."""
    g = torch.Generator().manual_seed(0)
    direction = {
        "expanded": torch.randn(1, 50, generator=g).expand(4, -1),
        "transposed": torch.randn(50, 4, generator=g).T,
        "float64": torch.randn(4, 50, generator=g, dtype=torch.float64),
    }[view]
    optimizer, ends = Optimizer("adam", lr=0.1), []
    for given in (direction, direction.float().contiguous().clone()):
        w = torch.ones(4, 50)
        moments = optimizer.init(w)
        for t in (1, 2):
            optimizer.step(w, given, moments, t)
        ends.append(w)
    torch.testing.assert_close(*ends)
