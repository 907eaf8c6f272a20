"""A federation over Flower computes what the engine computes: every method, every row, with absent silos."""

import math

import pytest
import torch

from fedamp.federation.silo.memory import Memory
from fedamp.methods import METHODS
from fedamp.methods.attention import misfit
from fedamp.records.reading import read_lines
from fedamp.runs.simulated_faults import draw_present
from federation.inprocess import Local, engine_rounds, plan_of, write_silos
from helpers import FAST

ROUNDS = 4


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name].params, theirs[name].params), name
        assert torch.equal(ours[name].buffers, theirs[name].buffers), name


EVERY_WAY = [
    pytest.param(name, init, marks=[] if name in FAST else pytest.mark.many)
    for init in ("common", "own")
    for name in sorted(METHODS)
]


@pytest.mark.parametrize(("method", "init"), EVERY_WAY)
def test_rows_equal_the_engines_with_absent_silos(tmp_path, method, init):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, method, rounds=ROUNDS, init=init, seed=5)
    presence = {k: draw_present(5, k, 3, 0.4) for k in range(1, ROUNDS + 1)}
    assert not all(bool(present.all()) for present in presence.values())
    rounds = engine_rounds(plan, lambda k: presence[k])

    def lose(number, reply):
        return reply if presence[int(reply.metadata.group_id)][number] else None

    local = Local(tmp_path, plan, data, tamper=lose)
    record = local.serve()

    assert record.state.k == ROUNDS
    assert_same(record.state.method_state.rows, rounds[-1].server.rows)
    assert_same(record.state.method_state.shared, rounds[-1].server.shared)
    assert record.state.method_state.pairs.keys() == rounds[-1].server.pairs.keys()
    for i in range(3):
        last = max((k for k in presence if presence[k][i]), default=0)
        kept = Memory(local.houses[i].folder / "memory").load(last)
        own = rounds[-1].clients.take(torch.tensor([i]))
        if last:
            assert_same(kept.rows, own.rows)


@pytest.mark.parametrize("method", ["separate", "scaffold", "autoamp"])
def test_as_much_travels_as_in_the_engine(tmp_path, method):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, method, rounds=2)
    rounds = engine_rounds(plan)
    Local(tmp_path, plan, data).serve()
    noted = [line["bytes"] for line in read_lines(tmp_path / "record" / "rounds.jsonl") if "bytes" in line]
    assert noted == [played.num_bytes for played in rounds]


def test_a_second_look_is_the_engines(tmp_path, monkeypatch):
    """AutoAMP's questions come early here, and everyone seems to be badly fitted."""
    monkeypatch.setattr(misfit, "FIRST", 2)
    monkeypatch.setattr(misfit, "STALLED", 0.0)
    monkeypatch.setattr(misfit, "LEFT", 0.0)
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, "autoamp", rounds=6, seed=5)
    rounds = engine_rounds(plan)
    record = Local(tmp_path, plan, data).serve()
    assert rounds[3].server.rows["doubted"].params.all()
    assert_same(record.state.method_state.rows, rounds[-1].server.rows)
    assert torch.equal(record.state.method_state.pairs["xi"], rounds[-1].server.pairs["xi"])
    monkeypatch.setattr(misfit, "ALONE", math.inf)
    assert engine_rounds(plan)[-1].server.rows["sharper"].params.all()
