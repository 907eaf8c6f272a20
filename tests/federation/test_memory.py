"""What a silo remembers: lost replies, repeated rounds and late messages do no harm."""

import json

import torch
from flwr.app import Context, RecordDict

from fedamp.federation.server.app import serve
from fedamp.federation.silo.memory import Memory
from fedamp.records.reading import read_lines
from federation.inprocess import Local, plan_of, write_silos


def test_scaffolds_control_stays_the_mean_of_all_though_replies_are_lost_and_rounds_repeated(tmp_path):
    """A reply that is lost after the silo has moved on: the silo must begin again from what the server knows."""
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, "scaffold", rounds=6)

    def lose(number, reply):
        return None if (int(reply.metadata.group_id) + number) % 3 == 0 else reply

    local = Local(tmp_path, plan, data, tamper=lose)
    record = local.serve()
    controls = []
    for i, key in enumerate(record.keys):
        state = Memory(local.houses[i].folder / "memory").load(record.state.standings[key].accepted)
        controls.append(state.rows["c_i"].params)
    total = record.state.method_state.shared["sum_c"].params
    torch.testing.assert_close(torch.cat(controls).sum(0, keepdim=True), total, rtol=1e-5, atol=1e-6)


def test_a_silo_without_its_memory_says_so_and_takes_no_harm(tmp_path):
    import shutil

    data = write_silos(tmp_path / "data")
    plan = plan_of(data, "scaffold", rounds=3)
    local = Local(tmp_path, plan, data)
    local.serve(rounds=2)
    shutil.rmtree(local.houses[1].folder / "memory")
    local.serve()
    assert "it has lost its memory of earlier rounds" in json.dumps(
        read_lines(tmp_path / "record" / "rounds.jsonl")[-2]
    )
    assert "restore the folder from a backup" in (local.houses[1].folder / "log.txt").read_text()


def test_a_silo_keeps_the_state_it_began_from_and_the_one_it_ended_with(tmp_path):
    data = write_silos(tmp_path / "data")

    def lose(number, reply):
        return None if number == 1 and int(reply.metadata.group_id) in (2, 3, 4) else reply

    local = Local(tmp_path, plan_of(data, rounds=4), data, tamper=lose)
    local.serve()
    assert Memory(local.houses[1].folder / "memory").rounds() == [1, 4]
    assert Memory(local.houses[0].folder / "memory").rounds() == [3, 4]


def test_a_message_that_comes_too_late_is_left_alone(tmp_path):
    """The server gave it up and went on: acting on it now would change what the silo remembers of an accepted round."""
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, "scaffold", rounds=3), data)
    grid = local.grid()
    serve(grid, local.federation, tmp_path / "record")
    memory = Memory(local.houses[1].folder / "memory")
    before = memory.load(3).rows["c_i"].params
    old = [m for m in grid.sent if m.metadata.dst_node_id == 101 and m.metadata.message_type == "train"][-2]
    old.content.config_records["config"]["server-round"] = 3  # round 3, played again with other contents
    reply = grid.apps[1](old, Context(1, 101, {}, RecordDict(), {}))
    assert reply.content.config_records["refusal"]["reason"] == "it got an old message"
    assert torch.equal(memory.load(3).rows["c_i"].params, before)
