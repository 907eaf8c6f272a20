"""Recorded passes without a GPU: a recording is played by the plain call, under the rules of a GPU's memory.

What stays is read where it was when it was recorded, everything else is copied there. Outputs have one place each, and
a replay may overwrite those of recordings that were made later: they share a pool.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import nn

import fedamp
from fedamp.methods import METHODS
from fedamp.training.stacked import all_at_once, graphs

SEVERAL = 4
"""Clients in a chunk from which on there is too little memory."""


class Replayed:
    """What stands for `_Recorded`."""

    made: ClassVar[list[Replayed]] = []
    read_in_place = 0

    def __init__(self, function, inputs, stay, pool):
        values = [value.detach() for value in inputs]
        self.inputs = [value if stays else value.clone() for value, stays in zip(values, stay, strict=True)]
        self.function, self.stay, self.graph = function, stay, self
        self.outputs = tuple(torch.full_like(output, torch.nan) for output in function(*self.inputs))
        self.made.append(self)

    def pool(self):
        return None

    def __call__(self, *inputs):
        for own, given, stays in zip(self.inputs, inputs, self.stay, strict=True):
            if stays:
                assert (own.data_ptr(), own.shape, own.stride()) == (given.data_ptr(), given.shape, given.stride())
                Replayed.read_in_place += 1
            else:
                own.copy_(given)
        for output, new in zip(self.outputs, self.function(*self.inputs), strict=True):
            output.copy_(new.detach())
        for later in self.made[self.made.index(self) + 1 :]:
            for output in later.outputs:
                output.fill_(torch.nan)
        return self.outputs


@pytest.fixture
def recorded(monkeypatch):
    """Let all passes be recorded, and a chunk of several clients fail once it has been trained."""
    monkeypatch.setattr(Replayed, "made", [])
    monkeypatch.setattr(Replayed, "read_in_place", 0)
    monkeypatch.setattr(graphs, "recordable", lambda value: True)
    monkeypatch.setattr(graphs, "_record", Replayed)
    means = all_at_once._Chunk.mean_losses

    def short(chunk):
        if len(chunk.places) >= SEVERAL:
            raise torch.OutOfMemoryError("too many")
        return means(chunk)

    monkeypatch.setattr(all_at_once._Chunk, "mean_losses", short)


def pairs():
    """Return clients of unequal sizes: their minibatches end at different steps."""
    g = torch.Generator().manual_seed(0)
    return [(torch.rand(n, 1, 6, 6, generator=g), torch.randint(3, (n,), generator=g)) for n in range(23, 65, 7)]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3))


@pytest.mark.many
@pytest.mark.parametrize("method", METHODS)
def test_recorded_passes_give_what_the_loop_gives(method, recorded):
    """With absent clients: each round has another number of rows, and places grow."""
    how = {"rounds": 4, "epochs": 2, "batch_size": 10, "method": method, "absent": 0.4, "optimizer": "sgd", "lr": 0.02}
    found = fedamp.run(clients=pairs(), model=net(), **how, engine="stacked", device="cpu")
    assert found.facts.engine == "stacked", found.facts.engine_why
    assert Replayed.read_in_place > 0
    loop = fedamp.run(clients=pairs(), model=net(), **how, engine="loop", device="cpu")
    for entry, models in found.models.items():
        torch.testing.assert_close(models.params, loop.models[entry].params, rtol=0, atol=1e-5)
        torch.testing.assert_close(models.buffers, loop.models[entry].buffers, rtol=0, atol=1e-4)
