"""FedAMP's local training as a careful user would write it in plain PyTorch: one client after another, fused Adam."""

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedamp.data.clients import Clients


class PlainLoop:
    """One module, loaded with each client's parameters in turn; torch.optim's fused Adam; the same minibatches."""

    def __init__(self, module: nn.Module, clients: Clients, lr: float) -> None:
        self.module, self.clients, self.lr = copy.deepcopy(module), clients, lr
        self.params = list(self.module.parameters())

    def run(
        self, start: Sequence[Sequence[Tensor]], batches: Sequence[Sequence[Tensor]], strength: float
    ) -> list[list[Tensor]]:
        """Train every client from its `start` near that same point; return the parameters where they end."""
        ended = []
        self.module.train()
        for mine, positions in zip(start, batches, strict=True):
            with torch.no_grad():
                for own, given in zip(self.params, mine, strict=True):
                    own.copy_(given)
            optimizer = torch.optim.Adam(self.params, lr=self.lr, fused=True)
            for batch in positions:
                x, y = self.clients.samples(batch)
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(self.module(x), y).backward()
                # The gradient of strength/2 |w - u|^2, added where it belongs, without a graph of its own.
                apart = torch._foreach_sub([p.detach() for p in self.params], list(mine))
                torch._foreach_add_([p.grad for p in self.params], apart, alpha=strength)
                optimizer.step()
            ended.append([p.detach().clone() for p in self.params])
        return ended
