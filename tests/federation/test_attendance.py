"""Who comes late, leaves or returns keeps its row; who has another plan is not let in."""

import json
from dataclasses import replace

import pytest
import torch

from fedamp.config.reply_limits import Rules
from fedamp.federation.plan import SiloConfig
from fedamp.federation.server import attendance
from fedamp.federation.silo import diary
from fedamp.records.reading import read_lines, read_run
from federation.inprocess import Local, plan_of, write_silos


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


def test_who_is_there_before_a_round_can_begin_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(attendance, "POLL", 0.0)
    data, looks = write_silos(tmp_path / "data"), []

    def online():
        silos = json.loads((tmp_path / "record" / "status.json").read_text())["silos"]
        looks.append({silo["name"]: (silo["state"], silo["seen"] is not None) for silo in silos})
        return [0] if len(looks) < 3 else [0, 1]

    local = Local(tmp_path, plan_of(data, rounds=1), data, Rules(min_silos=2), online=online)
    local.serve()
    never = {"silo-1": ("never came", False), "silo-2": ("never came", False)}
    assert looks[0] == {"silo-0": ("never came", False), **never}
    assert looks[2] == {"silo-0": ("here", True), **never}
    assert looks[-1]["silo-1"] == ("in", True)


def test_who_left_before_the_server_was_started_again_is_not_called_in(tmp_path, monkeypatch):
    """The page and the table say what the log says: nobody is here."""
    monkeypatch.setattr(attendance, "POLL", 0.0)
    monkeypatch.setattr(attendance, "STATUS", 0.0)
    data, looks = write_silos(tmp_path / "data"), []
    local = Local(tmp_path, plan_of(data, rounds=2), data, Rules(min_silos=2))
    local.serve(rounds=1)

    def online():
        status = json.loads((tmp_path / "record/status.json").read_text())
        looks.append((status["state"], [silo["state"] for silo in status["silos"]]))
        return [] if len(looks) < 3 else [0] if len(looks) < 5 else [0, 1, 2]

    local.online = online
    local.serve()
    assert ("waiting", ["away"] * 3) in looks
    assert ("waiting", ["in", "away", "away"]) in looks
    assert all(silo["state"] == "in" for silo in json.loads((tmp_path / "record/status.json").read_text())["silos"])


def test_what_a_silo_receives_in_the_end_is_of_the_last_round_though_it_missed_some(tmp_path):
    data = write_silos(tmp_path / "data")
    there = {1: [0, 1, 2], 2: [0, 1], 3: [0, 1], 4: [0, 1, 2]}
    local = Local(tmp_path, plan_of(data, rounds=3), data)
    local.online = lambda: there[1 + _done(tmp_path)]
    local.serve()
    made = {
        entry: json.loads((tmp_path / f"house-2/models/{entry}.json").read_text())["score"]["round"]
        for entry in ("own", "received")
    }
    assert made == {"own": 1, "received": 3}
    assert [(line["round"], line["ended"]) for line in diary.rounds(tmp_path / "house-2")] == [(1, False), (4, True)]


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "logistic"}, "model.name is 'logistic' there and 'mlp' here"),
        ({"lr": 0.5}, "lr is 0.5 there and None here"),
        ({"method": {"name": "fedamp", "lam": 0.5}}, "method.lam is 0.5 there and 1.0 here"),
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


def test_a_silo_of_another_version_is_let_in_and_both_sides_know(tmp_path, monkeypatch):
    """Its bundle was made by one version, it runs another, and the server a third: only the protocol must be one."""
    from fedamp.federation.silo import app

    data = write_silos(tmp_path / "data")
    plan = plan_of(data, rounds=2)
    local = Local(tmp_path, plan, data, Rules(min_silos=3))
    older = replace(plan, config=replace(plan.config, version="0.0.1"))
    local.houses[2] = replace(local.houses[2], config=SiloConfig(older, "silo-2", 2, "nowhere:1"))
    monkeypatch.setattr(app, "__version__", "9.9")
    record = local.serve()
    assert all(record.state.standings[key].accepted == 2 for key in record.keys)
    assert (tmp_path / "record/log.txt").read_text().count("silo-2 runs fedamp 9.9, this server ") == 1
    assert json.loads((tmp_path / "record/status.json").read_text())["silos"][2]["version"] == "9.9"


def test_a_silo_of_another_protocol_is_not_let_in(tmp_path, monkeypatch):
    from fedamp.federation import plan as plans

    data = write_silos(tmp_path / "data")
    plan = plan_of(data, rounds=2)
    told = plan.told()
    spoken = plans.PROTOCOL
    monkeypatch.setattr(plans, "PROTOCOL", spoken + 1)
    apart = f"protocol is {spoken} there and {spoken + 1} here"
    assert plans.disagreement(told, plan.told()) == f"{apart}; the older fedamp is there: upgrade it"
    apart = f"protocol is {spoken + 1} there and {spoken} here"
    assert plans.disagreement(plan.told(), told) == f"{apart}; the older fedamp is here: upgrade it"
    assert "upgrade" not in plans.disagreement({**told, "protocol": "3; run this"}, plan.told())
    before_there_was_one = {name: value for name, value in told.items() if name not in ("protocol", "at_default")}
    assert plans.disagreement(before_there_was_one, plan.told()).startswith(
        f"protocol is 1 there and {spoken + 1} here; the older fedamp is there"
    )


def test_a_setting_that_one_side_does_not_know_yet_counts_if_it_is_used(tmp_path):
    from fedamp.federation.plan import disagreement

    told = plan_of(write_silos(tmp_path / "data")).told()
    newer = {**told, "method": {**told["method"], "tempo": 3}, "mood": "good"}
    unused = {**newer, "at_default": [*told["at_default"], "method.tempo", "mood"]}
    for older, new in ((told, unused), (unused, told)):
        assert disagreement(older, new) == ""
    assert (
        disagreement(newer, told) == "method.tempo is 3 there and not set here; mood is 'good' there and not set here"
    )


def test_another_schema_is_not_let_in(tmp_path):
    data, wider = write_silos(tmp_path / "data"), write_silos(tmp_path / "wider", seed=3)
    plan = plan_of(data, rounds=2)
    local = Local(tmp_path, plan, data, Rules(min_silos=2))
    other = replace(plan, schema=plan_of(wider).schema)
    local.houses[2] = replace(local.houses[2], config=SiloConfig(other, "silo-2", 2, "nowhere:1"))
    local.serve()
    assert "schema is" in (tmp_path / "record" / "log.txt").read_text()


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
