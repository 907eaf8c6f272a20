"""Who is with whom: neighbours, with about as much work for each process."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.rows import Rows, State
from fedamp.runs import setup
from fedamp.runs.shard import ONE_PROCESS, Shard, cuts
from fedamp.training import stacked_or_loop


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.data())
def test_everyone_has_a_place_and_no_process_is_idle(work, data):
    parts = data.draw(st.integers(1, len(work)))
    found = cuts(work, parts)
    assert (found[0], found[-1], len(found)) == (0, len(work), parts + 1)
    assert all(begin < end for begin, end in itertools.pairwise(found))


@given(st.integers(1, 12), st.integers(1, 8))
def test_equal_clients_are_shared_equally(each, parts):
    assert cuts([5] * each * parts, parts) == tuple(range(0, each * parts + 1, each))


def test_a_large_client_has_fewer_neighbours():
    assert cuts([10, 1, 1, 1, 1, 1, 1, 1, 1, 1], 2) == (0, 1, 10)


def test_more_processes_than_clients():
    with pytest.raises(UserError, match="3 processes for 2 clients"):
        Shard.of(SimpleNamespace(size=3, rank=0), [1, 1], "cpu")


def test_the_clients_of_a_process():
    shard = Shard.of(SimpleNamespace(size=2, rank=1), [1] * 5, "cpu")
    who, rows = torch.tensor([0, 2, 4]), Rows.of(torch.arange(5.0)[:, None])
    assert shard.bounds[1] in (2, 3)
    mine = who[shard.here(who)]
    assert mine.tolist() == [i for i in (0, 2, 4) if i >= shard.bounds[1]]
    assert torch.equal(shard.rows(rows)[shard.places(mine)].params, rows[mine].params)
    state = shard.state(State(5, rows={"w": rows}))
    assert state.num_clients == len(state.rows["w"]) == 5 - shard.bounds[1]


def test_the_way_of_training_is_chosen_for_the_cores_of_this_process(monkeypatch):
    """Processes take their share of the cores when they meet, which must be before that."""

    def meet():
        torch.set_num_threads(3)

    monkeypatch.setattr(setup, "team", meet)
    monkeypatch.setattr(stacked_or_loop, "SMALL", 0)
    before = torch.get_num_threads()
    try:
        made = setup.assemble(RunConfig(clients=5, device="cpu"))
    finally:
        torch.set_num_threads(before)
    assert made.choice.threads == made.facts.threads == 3


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_each_thing_is_told_when_it_is_done(count):
    """Nobody waits for all that another process has to do."""
    things, told = list(range(count)), []

    def exchange(purpose, mine):
        """Tell what process 1 gives, with what the two others do at the same time."""
        told.append(len(mine))
        at = 3 * (len(told) - 1)
        others = [[10 * thing for thing in things[at + rank : at + rank + 1]] for rank in range(3)]
        assert mine == others[1]
        return others

    team = SimpleNamespace(size=3, rank=1, exchange=exchange, stop_together=lambda: None)
    assert Shard(team, (0, 1, 2, 3)).each(things, lambda thing: 10 * thing) == [10 * thing for thing in things]
    assert len(told) == math.ceil(count / 3)
    assert max(told, default=0) <= 1


def test_ctrl_c_between_two_things_is_heard():
    def stop():
        raise KeyboardInterrupt

    done = []
    team = SimpleNamespace(size=1, rank=0, exchange=lambda purpose, mine: [mine], stop_together=stop)
    with pytest.raises(KeyboardInterrupt):
        Shard(team, (0, 1)).each([1, 2], done.append)
    assert done == [1]


def test_one_process_has_all_and_copies_nothing():
    rows = Rows.of(torch.zeros(3, 2))
    assert ONE_PROCESS.rows(rows) is rows
    assert ONE_PROCESS.all_rows({"w": rows})["w"] is rows
    assert ONE_PROCESS.here(torch.tensor([0, 2])).tolist() == [True, True]
    assert (ONE_PROCESS.leads, ONE_PROCESS.processes, ONE_PROCESS.told("x", 1)) == (True, 1, [1])
