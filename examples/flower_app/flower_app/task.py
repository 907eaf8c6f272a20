"""The model and the data: each partition has its own mix of digits."""

import torch
from torch import Tensor, nn

from fedamp.data import load_data
from fedamp.data.partition import make_setting


def net() -> nn.Module:
    torch.manual_seed(0)  # every client and the server start from the same model
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def partition(number: int, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    digits = load_data("digits")
    pools = digits.train_pool.numpy(), digits.test_pool.numpy()
    parts = make_setting("practical", groups=2).assign(digits.y.numpy(), *pools, count, seed=0)
    train, test = torch.from_numpy(parts.train[number]), torch.from_numpy(parts.test[number])
    x = digits.x.float() / digits.scale
    return x[train], digits.y[train], x[test], digits.y[test]
