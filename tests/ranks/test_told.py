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


def test_what_the_leader_has_is_sent_by_nobody_else(monkeypatch):
    """All the others once sent as many blanks as a checkpoint has bytes, and each of them kept all of it."""
    gathered, sent = [], []

    def all_bytes(team, purpose, mine):
        gathered.append(mine)
        return [gathered[0]] * team.size

    def broadcast(whole, src):
        assert src == 0
        if not sent:
            sent.append(whole.clone())
        whole.copy_(sent[0])

    monkeypatch.setattr(Team, "_all_bytes", all_bytes)
    monkeypatch.setattr(torch.distributed, "broadcast", broadcast)
    leader, other = (Team(Launched(rank, 2, rank, 2)) for rank in (0, 1))
    assert leader.from_leader("all", lambda: LARGE) is LARGE
    assert torch.equal(other.from_leader("all", lambda: None), LARGE)
    assert max(map(len, gathered)) < FEW
    assert LARGE.nbytes < len(sent[0]) < LARGE.nbytes + 2_000
    gathered.clear()
    assert [one.from_leader("a word", lambda: ["yes"]) for one in (leader, other)] == [["yes"]] * 2
    assert len(sent) == 1  # few bytes need no second meeting
