"""What processes tell each other besides rows is small: no tensor takes along what it is a part of."""

import pickle

import pytest
import torch

from fedamp.ranks.launched import Launched
from fedamp.ranks.team import FEW, Team, packed
from fedamp.rows import Rows
from fedamp.runs.shard import Shard

LARGE = torch.arange(300_000.0).view(30, 10_000)


@pytest.mark.parametrize(
    "part", [LARGE[:0], LARGE[2, :5], LARGE[:, 7], LARGE.T[:3, :4], LARGE[:1, :1].expand(3, 4), torch.ones(4, 5).T]
)
def test_a_part_of_a_tensor_travels_alone(part):
    told = packed(("rows", {"w": part, "n": 3}))
    assert len(told) < 2_000
    name, found = pickle.loads(told)
    assert (name, found["n"], found["w"].dtype) == ("rows", 3, part.dtype)
    assert torch.equal(found["w"], part)


def test_a_whole_tensor_travels_as_it_is():
    found = pickle.loads(packed(LARGE))
    assert torch.equal(found, LARGE)
    assert len(packed(LARGE)) < LARGE.nbytes + 2_000


def test_rows_are_announced_in_few_words(monkeypatch):
    """The rows themselves are stacked; what is told before them once took all of them along too."""
    told = []

    def alone(team, purpose, mine):
        told.append(len(mine))
        return [mine] * team.size

    monkeypatch.setattr(Team, "_all_bytes", alone)
    monkeypatch.setattr(Team, "stack", lambda team, purpose, mine, counts: torch.cat([mine] * team.size))
    shard = Shard(Team(Launched(0, 2, 0, 2)), (0, 30, 60))
    whole, _ = shard.all_told({"w": Rows(LARGE, LARGE[:, :3])}, None)
    assert whole["w"].params.shape == (60, 10_000)
    assert whole["w"].buffers.shape == (60, 3)
    assert max(told) < FEW
