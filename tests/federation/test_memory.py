"""Who comes late, leaves, returns or is stopped: every silo keeps its row, and the result is the uninterrupted one."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from fedamp.federation.plan import Plan, Rules, SiloConfig
from fedamp.federation.server.app import serve
from fedamp.federation.silo.memory import Memory
from fedamp.methods import METHODS
from fedamp.records.reading import read_lines, read_run
from federation.inprocess import Local, engine_rounds, plan_of, write_silos


class Killed(BaseException):
    """As SIGKILL: nothing gets to tidy up."""


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize(
    ("moment", "when"), [("before the checkpoint", 1), ("before the checkpoint", 2), ("after the checkpoint", 2)]
)
def test_a_server_that_was_killed_goes_on_as_if_it_never_had_been(tmp_path, monkeypatch, method, moment, when):
    from fedamp.records.folder import RunFolder

    data = write_silos(tmp_path / "data")
    plan = plan_of(data, method, rounds=4)
    local = Local(tmp_path, plan, data)
    save = RunFolder.save

    def dying(folder, checkpoint):
        if moment == "after the checkpoint":
            save(folder, checkpoint)
        if checkpoint.k == when:
            raise Killed
        save(folder, checkpoint)

    monkeypatch.setattr(RunFolder, "save", dying)
    with pytest.raises(Killed):
        local.serve()
    monkeypatch.setattr(RunFolder, "save", save)
    record = local.serve()
    expected = engine_rounds(plan)[-1].server
    for kind in ("rows", "shared"):
        for name, rows in getattr(expected, kind).items():
            assert torch.equal(getattr(record.state.method_state, kind)[name].params, rows.params), name
    lines = read_lines(tmp_path / "record" / "rounds.jsonl")
    assert [line["round"] for line in lines][:5] == [0, 1, 2, 3, 4]


def test_a_server_killed_after_the_last_round_still_sums_up(tmp_path, monkeypatch):
    from fedamp.federation.server.record import Record

    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data)
    last = Record.last_scores
    monkeypatch.setattr(Record, "last_scores", lambda self, replies: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        local.serve()
    monkeypatch.setattr(Record, "last_scores", last)
    assert not local.serve().state.k > 2
    assert read_run(tmp_path / "record").finished


def test_a_finished_federation_is_left_alone_and_can_be_given_more_rounds(tmp_path):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, "scaffold", rounds=4)
    local = Local(tmp_path, plan, data)
    local.serve(rounds=2)
    before = (tmp_path / "record" / "rounds.jsonl").read_text()
    local.serve(rounds=2)
    assert (tmp_path / "record" / "rounds.jsonl").read_text() == before
    record = local.serve()
    expected = engine_rounds(plan)[-1].server
    assert torch.equal(record.state.method_state.shared["x"].params, expected.shared["x"].params)
    assert torch.equal(record.state.method_state.shared["sum_c"].params, expected.shared["sum_c"].params)


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


def test_a_silo_that_comes_late_gets_a_row_and_one_that_leaves_keeps_it(tmp_path):
    data = write_silos(tmp_path / "data")
    there = {1: [0, 1], 2: [0, 1], 3: [0, 1, 2], 4: [0, 2], 5: [0, 1, 2], 6: [0, 1, 2]}
    plan = plan_of(data, rounds=5)
    local = Local(tmp_path, plan, data)
    local.online = lambda: there[1 + _done(tmp_path)]
    record = local.serve()
    assert record.state.order == [record.keys[0], record.keys[1], record.keys[2]]
    lines = read_lines(tmp_path / "record" / "rounds.jsonl")
    assert [line["present"] for line in lines[1:6]] == [[i in there[k] for i in range(3)] for k in range(1, 6)]
    log = (tmp_path / "record" / "log.txt").read_text()
    assert "silo-2 has not joined yet" in log
    assert "silo-1 missing since round 4" in log
    assert lines[2]["self_weight"][2] is None
    assert lines[3]["self_weight"][2] is not None
    # The method's own rule for a late client, by hand.
    made = engine_with_late_client(plan, there)
    assert torch.equal(record.state.method_state.rows["w"].params, made)


def _done(folder):
    path = folder / "record" / "status.json"
    return json.loads(path.read_text())["round"] if path.exists() else 0


def engine_with_late_client(plan, there):
    from fedamp.runs.setup import assemble

    made = assemble(replace(plan.config, engine="loop"))
    first = slice(0, 2)
    server, clients = made.method.server_init(made.w[first]), made.method.client_init(made.w)
    for k in range(1, 6):
        if k == 3:
            server = server.append(made.method.server_init(made.w[slice(2, 3)]))
        server, message = made.method.server_send(server, k)
        who = torch.tensor(there[k])
        received = {name: rows[who] for name, rows in message.items()}
        part, reply = made.method.client_update(
            clients.take(who), received, made.trainer.local(made.clients.take(who), k)
        )
        present = torch.zeros(server.num_clients, dtype=torch.bool)
        present[who] = True
        server, clients = made.method.server_receive(server, reply, present), clients.put(who, part)
    return server.rows["w"].params


def test_a_member_who_is_added_later_joins_a_record_that_knew_nothing_of_it(tmp_path):
    data = write_silos(tmp_path / "data", num_silos=4)
    plan = plan_of(data, rounds=4)
    local = Local(tmp_path, plan, data)
    paths, local.paths = local.paths, local.paths[:3]
    local.serve(rounds=2)
    local.paths = paths
    record = local.serve()
    assert len(record.state.order) == 4
    run = read_run(tmp_path / "record")
    assert {len(line["present"]) for line in run.lines if "present" in line} == {4}
    assert run.xi().shape == (4, 4, 4)
    assert run.config["clients"] == 4
    assert run.finished


def test_a_silo_without_its_memory_says_so_and_takes_no_harm(tmp_path):
    import shutil

    data = write_silos(tmp_path / "data")
    plan = plan_of(data, "scaffold", rounds=3)
    local = Local(tmp_path, plan, data)
    local.serve(rounds=2)
    shutil.rmtree(local.houses[1].folder / "memory")
    local.serve()
    assert "it has lost what it must remember" in json.dumps(read_lines(tmp_path / "record" / "rounds.jsonl")[-2])
    assert "put the folder back from a copy" in (local.houses[1].folder / "log.txt").read_text()


def test_a_silo_keeps_the_state_it_began_from_and_the_one_it_ended_with(tmp_path):
    data = write_silos(tmp_path / "data")

    def lose(number, reply):
        return None if number == 1 and int(reply.metadata.group_id) in (2, 3, 4) else reply

    local = Local(tmp_path, plan_of(data, rounds=4), data, tamper=lose)
    local.serve()
    assert Memory(local.houses[1].folder / "memory").rounds() == [1, 4]
    assert Memory(local.houses[0].folder / "memory").rounds() == [3, 4]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "logistic"}, "model.name is 'logistic' there and 'mlp' here"),
        ({"lr": 0.5}, "lr is 0.5 there and None here"),
        ({"version": "0.0.1"}, "its installation does not fit the plan"),
        ({"seed": 9}, "seed is 9 there and 0 here"),
    ],
)
def test_a_silo_with_another_plan_is_not_let_in(tmp_path, change, words):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, rounds=2)
    local = Local(tmp_path, plan, data, Rules(min_silos=2))
    other = plan_of(data, rounds=2, **change)
    local.houses[2] = replace(local.houses[2], config=SiloConfig(other, "silo-2", 2, "nowhere:1"))
    record = local.serve()
    log = (tmp_path / "record" / "log.txt").read_text()
    assert "silo-2 is not let in" in log
    assert words in log
    assert record.keys[2] not in record.state.order


def test_another_schema_is_not_let_in(tmp_path):
    data, wider = write_silos(tmp_path / "data"), write_silos(tmp_path / "wider", seed=3)
    plan = plan_of(data, rounds=2)
    local = Local(tmp_path, plan, data, Rules(min_silos=2))
    other = replace(plan, schema=plan_of(wider).schema)
    local.houses[2] = replace(local.houses[2], config=SiloConfig(other, "silo-2", 2, "nowhere:1"))
    local.serve()
    assert "schema is" in (tmp_path / "record" / "log.txt").read_text()


def test_report_and_result_read_a_federation_as_a_simulation(tmp_path, fedamp_command):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, "heurfedamp", rounds=3)
    Local(tmp_path, plan, data).serve()
    run = read_run(tmp_path / "record")
    expected = engine_scores(plan, data)
    got = np.array([line["test"]["own"]["accuracy"] for line in run.lines if "own" in line.get("test", {})])
    np.testing.assert_allclose(got, expected)
    code, out, err = fedamp_command("report", tmp_path / "record")
    assert code == 0, err
    page = (tmp_path / "record" / "report.html").read_text()
    assert "repeat it from there" in page
    assert "fedamp run --data" not in page
    code, out, err = fedamp_command("report", tmp_path / "record", "--format", "text")
    assert code == 0, err
    assert "heurfedamp" in out
    code, out, err = fedamp_command("export", tmp_path / "record", "--client", 1)
    assert (code, "each silo has its model at home" in err) == (2, True)
    code, out, err = fedamp_command("resume", tmp_path / "record")
    assert code == 0  # it is there already, and is shown
    (tmp_path / "record" / "result.json").unlink()
    code, out, err = fedamp_command("resume", tmp_path / "record")
    assert (code, "fedamp federation up" in err) == (2, True)


def engine_scores(plan, data):
    from fedamp.runs.loop import play
    from fedamp.runs.setup import assemble

    config = replace(plan.config, engine="loop")
    history = play(config, assemble(config)).history
    return np.array([line["test"]["own"]["accuracy"] for line in history if "own" in line["test"]])


def test_every_silo_has_its_own_model_at_home(tmp_path):
    from safetensors.torch import load_file

    data = write_silos(tmp_path / "data")
    plan = plan_of(data, rounds=2)
    local = Local(tmp_path, plan, data)
    record = local.serve()
    own = load_file(local.houses[1].folder / "models" / "own.safetensors")
    flat = torch.cat([own[f"{layer}.{what}"].reshape(-1) for layer in (1, 3) for what in ("weight", "bias")])
    assert torch.equal(flat, record.state.method_state.rows["w"].params[1])


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


def test_a_silo_can_not_answer_for_another(tmp_path):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, rounds=2)

    def forge(number, reply):
        if number == 1:
            reply.metadata.__dict__["_src_node_id"] = 100
        return reply

    record = Local(tmp_path, plan, data, tamper=forge).serve()
    assert record.state.standings[record.keys[1]].accepted == 0
    assert record.state.standings[record.keys[0]].accepted == 2


@pytest.mark.parametrize("damage", ["checkpoints", "a line"])
def test_a_damaged_record_is_not_begun_anew(tmp_path, damage):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=4), data)
    local.serve(rounds=2)
    record = tmp_path / "record"
    if damage == "checkpoints":
        for path in record.glob("checkpoint-*"):
            path.write_bytes(b"damaged")
    else:
        lines = (record / "rounds.jsonl").read_text().splitlines(keepends=True)
        (record / "rounds.jsonl").write_text("".join(lines[:2]))
    before = (record / "rounds.jsonl").read_text()
    with pytest.raises(ValueError, match="no checkpoint that fits them"):
        local.serve()
    assert (record / "rounds.jsonl").read_text() == before


def test_members_that_were_moved_or_taken_out_are_refused(tmp_path):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, rounds=4)
    local = Local(tmp_path, plan, data)
    local.serve(rounds=2)
    a, b, c = local.federation.members
    for members in ((b, a, c), (a, b)):
        with pytest.raises(ValueError, match="restore their order"):
            serve(local.grid(), replace(local.federation, members=members), tmp_path / "record")


def test_a_clock_that_goes_back_stops_nobody(tmp_path, monkeypatch):
    """Messages are numbered by the server's starts, not by its clock."""
    import time

    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=3), data)
    local.serve(rounds=1)
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    monkeypatch.setattr(time, "time", lambda: 1.0)
    assert local.serve().state.k == 3


def test_who_is_set_aside_stays_so_when_the_server_is_started_again(tmp_path):
    """Also where no round has counted since."""
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data)
    local.serve(rounds=1)
    path = tmp_path / "record" / "status.json"
    status = json.loads(path.read_text())
    status["silos"][1] |= {"state": "set aside", "strikes": 3, "reason": "it was bad"}
    path.write_text(json.dumps(status))
    record = local.serve()
    assert record.state.standings[record.keys[1]].accepted == 1
    assert record.state.standings[record.keys[1]].aside


def test_a_silos_model_can_be_fed_from_its_own_json(tmp_path):
    """From a csv row to a prediction, with torch and safetensors alone."""
    from safetensors.torch import load_file

    from fedamp.config import Named, RunConfig
    from fedamp.data.silos.read import read_silo
    from fedamp.data.silos.schema import make_schema
    from fedamp.federation.silo.app import House

    folder = tmp_path / "data"
    folder.mkdir()
    for name in "ab":
        rows = "".join(f"{20 + i},{'xy'[i % 2]}w,{i * 0.5},{'no' if i < 15 else 'yes'}\n" for i in range(30))
        (folder / f"{name}.csv").write_text("age,ward,dose,outcome\n" + rows)
    silos = [read_silo(folder / f"{name}.csv", "outcome") for name in "ab"]
    config = RunConfig(
        data="x", setting=Named("natural"), clients=2, label="outcome", rounds=6, model=Named("mlp"), batch_size=5
    )
    plan = Plan("test", config, make_schema(silos))
    local = Local(tmp_path, plan, folder)
    local.paths = [folder / "a.csv", folder / "b.csv"]
    local.houses = {
        i: House(SiloConfig(plan, f"silo-{i}", i, "nowhere:1"), path, tmp_path / f"house-{i}")
        for i, path in enumerate(local.paths)
    }
    local.serve()
    how = json.loads((tmp_path / "house-0/models/own.json").read_text())
    state = load_file(tmp_path / "house-0/models/own.safetensors")
    model = torch.nn.Sequential(*[getattr(torch.nn, name)(**options) for name, options in how["layers"]])
    model.load_state_dict(state)
    row = {"age": 48.0, "ward": "xw", "dose": 14.0}
    values = []
    for name in how["inputs"]:
        column, equals, word = name.partition("=")
        values.append(float(row[column] == word) if equals and column in how["words"] else row[name])
    x = (torch.tensor(values) - torch.tensor(how["shift"])) / torch.tensor(how["scale"])
    assert how["labels"][int(model(x[None]).argmax())] == "yes"


def test_the_last_scores_are_not_waited_for_without_end(tmp_path, monkeypatch):
    """All silos leave right after the last round: what was played is summed up all the same."""
    from fedamp.federation.server import attendance, strategy

    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data, Rules(min_silos=2))
    local.online = lambda: [] if _done(tmp_path) == 2 else [0, 1, 2]
    monkeypatch.setattr(strategy, "LAST_PATIENCE", 0.2)
    monkeypatch.setattr(attendance, "POLL", 0.05)
    local.serve()
    run = read_run(tmp_path / "record")
    assert run.finished
    assert run.result["best"] is not None
