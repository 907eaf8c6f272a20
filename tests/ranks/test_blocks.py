"""Blocks of columns that several processes share: each is computed once, and together they are the whole."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from fedamp import rows
from fedamp.methods.attention import squared_distances
from fedamp.methods.attention.similarity import cosines
from fedamp.ranks import blocks
from fedamp.ranks.blocks import share, together


@dataclass
class Stub:
    """One of several processes, played in turn: the first times it only notes what each would give."""

    size: int
    rank: int = 0
    given: dict[int, list[Any]] = field(default_factory=dict)
    calls: int = 0

    def stack(self, purpose, mine, counts):
        assert len(mine) == counts[self.rank]
        self.given.setdefault(self.calls, [None] * self.size)[self.rank] = mine
        parts = self.given[self.calls]
        self.calls += 1
        return torch.cat([torch.zeros_like(mine[:1]).expand(n, *mine.shape[1:]) if p is None else p
                          for p, n in zip(parts, counts, strict=True)])  # fmt: skip


def played_by(size, function):
    """Return what the last of several processes gets, once all have given their part."""
    team = Stub(size)
    for turn in range(2 * size):  # in the second round everything that is needed has been given
        team.rank, team.calls = turn % size, 0
        with together(team):
            found = function()
    assert team.given
    return found


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setattr(rows, "BLOCK", 40)
    monkeypatch.setattr(blocks, "MANY", 2)


@pytest.mark.parametrize("size", [2, 3])
def test_products_and_mixtures_are_those_of_one_process(size, narrow):
    g = torch.Generator().manual_seed(0)
    w, xi = torch.randn(5, 61, generator=g, dtype=torch.float64), torch.rand(5, 5, generator=g, dtype=torch.float64)
    for function in (lambda: squared_distances(w), lambda: cosines(w), lambda: rows.mix(xi, w)):
        torch.testing.assert_close(played_by(size, function), function(), rtol=1e-12, atol=1e-12)


def test_every_block_is_one_processes():
    found = [slice(i, i + 1) for i in range(7)]
    for size in (2, 3, 7):
        taken = []
        for rank in range(size):
            with together(Stub(size, rank)):
                taken += share(iter(found)).mine
        assert taken == found


def test_little_work_is_not_shared():
    few = [slice(0, 1)]
    with together(Stub(2)):
        assert share(iter(few)).team is None  # fewer blocks than processes
        assert share(iter(few * 4), num_models=blocks.MANY - 1).team is None
        assert share(iter(few * 4), num_models=blocks.MANY).team is not None
    assert share(iter(few * 4)).team is None  # nor is anything outside
