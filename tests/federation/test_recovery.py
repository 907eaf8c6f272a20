"""What was lost or stolen: a record restored from an older copy, a new disk, a silo readmitted, rewound or removed."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from fedamp.config.reply_limits import Rules
from fedamp.errors import UserError
from fedamp.federation.plan_files import read_federation, write_federation
from fedamp.federation.provision.address import ADDRESS, Address
from fedamp.federation.server import recovery
from fedamp.federation.silo.memory import Memory
from fedamp.records.reading import read_lines, read_run
from federation.inprocess import Local, engine_rounds, plan_of, write_silos
from federation.provisioned import NAMES

MANY = pytest.mark.many
NO_MEMORY = ["autoamp", *(pytest.param(name, marks=MANY) for name in ("fedamp", "fedavg", "fedprox", "heurfedamp"))]
OTHERS = ["apfl", "separate", {"name": "fedamp", "start": "w"}]
REMEMBER = ["scaffold", *(pytest.param(method, marks=MANY) for method in OTHERS)]


class Killed(BaseException):
    """As SIGKILL: nothing gets to tidy up."""


def made(tmp_path, method, rounds, min_silos=3) -> Local:
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, method, rounds=rounds), data, Rules(min_silos=min_silos))
    local.online = at_most(16, local)
    write_federation(tmp_path, local.federation)
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / ADDRESS).write_text(json.dumps(vars(Address.of(["localhost"], 9092))))
    return local


def at_most(looks: int, local: Local):
    """All silos are online; a federation that does not go on is a failure, not a test without end."""
    left = iter(range(looks))

    def online():
        assert next(left, None) is not None, f"it does not go on:\n{log_of(local.folder / 'record')}"
        return [0, 1, 2]

    return online


def assert_as_uninterrupted(record, plan) -> None:
    expected = engine_rounds(plan)[-1].server
    for kind in ("rows", "shared"):
        for name, rows in getattr(expected, kind).items():
            assert torch.equal(getattr(record.state.method_state, kind)[name].params, rows.params), name


def assert_control_is_the_mean(local, record) -> None:
    controls = [
        Memory(local.houses[i].folder / "memory").load(record.state.standings[key].accepted).rows["c_i"].params
        for i, key in enumerate(record.keys)
        if key in record.state.order
    ]
    total = record.state.method_state.shared["sum_c"].params
    torch.testing.assert_close(torch.cat(controls).sum(0, keepdim=True), total, rtol=1e-5, atol=1e-6)


def log_of(folder) -> str:
    return (folder / "log.txt").read_text()


@pytest.mark.parametrize("method", NO_MEMORY)
def test_a_record_restored_from_an_older_copy_goes_on_as_if_nothing_had_been(tmp_path, method):
    """Silos are rounds ahead, and have seen later messages: they are not refused, and nothing needs to be done."""
    local = made(tmp_path, method, 5)
    local.serve(rounds=2)
    shutil.copytree(tmp_path / "record", tmp_path / "backup")
    local.serve(rounds=3)
    local.serve(rounds=4)
    shutil.rmtree(tmp_path / "record")
    shutil.copytree(tmp_path / "backup", tmp_path / "record")
    record = local.serve()
    assert_as_uninterrupted(record, local.plan)
    assert log_of(tmp_path / "record").count("it is an older copy; going on from it") == 1
    assert f"{method} needs none of them, so this silo goes on" in log_of(local.houses[0].folder)
    starts = json.loads((tmp_path / "record/life.json").read_text())["starts"]
    assert starts >= 4, "the next start must not be taken for an older one"


@pytest.mark.parametrize("method", NO_MEMORY)
def test_a_silo_on_a_new_disk_goes_on_where_no_memory_is_needed(tmp_path, method):
    local = made(tmp_path, method, 4)
    local.serve(rounds=2)
    shutil.rmtree(local.houses[1].folder)
    record = local.serve()
    assert_as_uninterrupted(record, local.plan)
    assert "who has lost the memory of its last round goes on, since this method needs none: silo-1" in log_of(
        tmp_path / "record"
    )
    assert "the rounds kept in" in log_of(local.houses[1].folder)


def test_after_the_last_round_a_silo_without_its_own_model_keeps_the_received_one_alone(tmp_path):
    local = made(tmp_path, "fedamp", 2)

    def lose_all(number, reply):
        if number == 1 and reply.metadata.group_id == "2":
            shutil.rmtree(local.houses[1].folder)
        return reply

    local.tamper = lose_all
    local.serve()
    assert sorted(path.name for path in (local.houses[1].folder / "models").glob("*.safetensors")) == [
        "received.safetensors"
    ]


@pytest.mark.parametrize(("disk", "begins_again"), [("as it was", False), ("new", True)])
def test_what_is_trained_alone_goes_on_as_long_as_it_is_there(tmp_path, disk, begins_again):
    """It owes nothing to the server: a record from an older copy is no reason to train it again from the start."""
    local = made(tmp_path, "fedamp", 4)
    local.houses[1] = replace(local.houses[1], alone=True)
    local.serve(rounds=2)
    shutil.copytree(tmp_path / "record", tmp_path / "backup")
    local.serve(rounds=4)
    trained = Memory(local.houses[1].folder / "memory").load(4).rows["alone"].params
    shutil.rmtree(tmp_path / "record")
    shutil.copytree(tmp_path / "backup", tmp_path / "record")
    if disk == "new":
        shutil.rmtree(local.houses[1].folder)
    local.serve(rounds=3)
    after = Memory(local.houses[1].folder / "memory").load(3).rows["alone"].params
    assert ("training alone begins in round 3" in log_of(local.houses[1].folder)) == begins_again
    first = local.houses[1].open(None).setup.w.params
    further = (after - first).norm() > (trained - first).norm()
    assert further != begins_again


@pytest.mark.parametrize("method", REMEMBER)
def test_a_silo_that_has_lost_what_it_must_remember_is_readmitted(tmp_path, method):
    local = made(tmp_path, method, 5)
    local.serve(rounds=2)
    shutil.rmtree(local.houses[1].folder)
    looks = iter(range(9))

    def online():
        if next(looks) == 2:  # both sides were told before; now the operator does what they say
            assert "fedamp federation readmit FOLDER silo-1" in log_of(local.houses[1].folder)
            assert "silo-1 refuses: it has lost its memory of earlier rounds; to let it begin anew" in log_of(
                tmp_path / "record"
            )
            recovery.readmit(tmp_path, "silo-1")
        return [0, 1, 2]

    local.online = online
    record = local.serve()
    assert record.state.k == 5
    assert all(record.state.standings[key].accepted == 5 for key in record.keys)
    assert not (tmp_path / "readmit/silo-1").exists()
    assert record.state.method.anew in log_of(tmp_path / "record")
    assert record.state.method.anew in log_of(local.houses[1].folder)
    if method == "scaffold":
        assert_control_is_the_mean(local, record)


def test_a_readmission_survives_a_server_that_is_killed_right_after(tmp_path):
    local = made(tmp_path, "scaffold", 3)
    local.serve(rounds=2)
    shutil.rmtree(local.houses[1].folder)
    recovery.readmit(tmp_path, "silo-1")

    def die(number, reply):
        raise Killed

    local.tamper = die
    with pytest.raises(Killed):
        local.serve()
    assert not (tmp_path / "readmit/silo-1").exists()
    local.tamper = lambda number, reply: reply
    assert_control_is_the_mean(local, local.serve())


def test_readmission_is_for_members_and_for_methods_that_remember(federation):
    assert "nothing to do: with autoamp" in recovery.readmit(federation, NAMES[0])
    with pytest.raises(UserError, match="has no silo 'stranger'"):
        recovery.readmit(federation, "stranger")


@pytest.mark.parametrize("method", ["fedamp", "scaffold", pytest.param("separate", marks=MANY)])
def test_a_federation_goes_on_from_a_kept_round(tmp_path, method):
    local = made(tmp_path, method, 4)
    local.serve()
    with pytest.raises(UserError, match=r"round 1 is not kept.*are: 2, 3, 4"):
        recovery.rewind(tmp_path, 1)
    assert "goes on after round 2: rounds 3 to 4 are played again" in recovery.rewind(tmp_path, 2)
    record = local.serve()
    assert [line["round"] for line in read_lines(tmp_path / "record/rounds.jsonl")][:5] == [0, 1, 2, 3, 4]
    assert read_run(tmp_path / "record").finished
    assert "the operator has rewound the federation from round 4 to 2" in log_of(tmp_path / "record")
    if method == "fedamp":
        assert_as_uninterrupted(record, local.plan)
    if method == "scaffold":
        assert_control_is_the_mean(local, record)


def test_which_rounds_are_kept():
    from fedamp.federation.server.record import KEPT

    there: list[int] = []
    for k in range(1, 128):
        there = sorted(KEPT.among([*there, k]))
    assert there == [*range(30, 121, 10), 125, 126, 127]


def test_a_removed_silo_is_out_at_once_and_the_others_go_on_without_its_row(tmp_path):
    local = made(tmp_path, "fedamp", 5, min_silos=2)
    looks = iter(range(9))

    def online():
        if next(looks) == 1:  # while the second round is sent
            recovery.remove(tmp_path, "silo-1")
        return [0, 1, 2]

    local.online = online
    grid = local.grid()
    from fedamp.federation.server.app import open_record, play

    record, turned_away = open_record(local.federation, tmp_path / "record"), []
    play(grid, record, turned_away.append)
    assert turned_away == ["silo-1"]
    assert record.state.order == [record.keys[0], record.keys[2]]
    asked = [m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "train"]
    assert asked == [100, 101, 102] * 2 + [100, 102] * 3
    run = read_run(tmp_path / "record")
    xi = run.xi()
    assert (xi[:2, [0, 2], 1] > 0).all()
    assert (xi[2:, [0, 2], 1] == 0).all()
    torch.testing.assert_close(torch.from_numpy(xi[:, [0, 2]]).sum(2), torch.ones(5, 2))
    assert torch.equal(record.state.method_state.rows["w"].params, without_the_second(local.plan))
    status = json.loads((tmp_path / "record/status.json").read_text())
    assert [silo["state"] for silo in status["silos"]] == ["in", "removed", "in"]
    assert "round 5/5: 2 of 2 silos" in log_of(tmp_path / "record")
    # From federation.json alone, too: a server that is started later does not know it any more.
    again = read_federation(tmp_path)
    assert [member.removed for member in again.members] == [False, True, False]
    later = replace(again, plan=replace(again.plan, config=replace(again.plan.config, rounds=6)))
    local.online = lambda: [0, 1, 2]
    record = open_record(later, tmp_path / "record")
    play(local.grid(), record)
    assert record.state.order == [record.keys[0], record.keys[2]]


def without_the_second(plan):
    """The same by hand: five rounds, from the third on with the first and the third client alone."""
    from fedamp.runs.setup import assemble

    made = assemble(replace(plan.config, engine="loop"))
    method, server, clients = made.method, made.method.server_init(made.w), made.method.client_init(made.w)
    for k in range(1, 6):
        who = torch.tensor([0, 1, 2] if k < 3 else [0, 2])
        if k == 3:
            server = method.server_leave(server, who)
        server, message = method.server_send(server, k)
        part, reply = method.client_update(clients.take(who), message, made.trainer.local(made.clients.take(who), k))
        server = method.server_receive(server, reply, torch.ones(len(who), dtype=torch.bool))
        clients = clients.put(who, part)
    return server.rows["w"].params


def test_scaffolds_control_stays_the_mean_when_a_silo_is_removed(tmp_path):
    local = made(tmp_path, "scaffold", 4, min_silos=2)
    local.serve(rounds=2)
    recovery.remove(tmp_path, "silo-0")
    record = local.serve()
    assert record.state.method_state.num_clients == 2
    assert_control_is_the_mean(local, record)


def test_removal_takes_the_key_and_never_gives_the_number_again(federation, fedamp_command):
    from fedamp.federation import provision

    code, out, err = fedamp_command("federation", "remove", federation, NAMES[2])
    assert code == 0, err
    assert f"{NAMES[2]} is removed: its key is refused" in out
    assert "each can compute the other's model" in err
    assert not (federation / f"server/keys/{NAMES[2]}.pub").exists()
    assert (federation / f"server/keys/{NAMES[0]}.pub").exists()
    for command in ("remove", "readmit"):
        code, _, err = fedamp_command("federation", command, federation, NAMES[2])
        assert (code, "has removed silo" in err) == (2, True)
    provision.add(federation, ["wombat-institute"])
    assert read_federation(federation).members[-1].number == 3
    with pytest.raises(UserError, match=NAMES[2]):
        provision.add(federation, [NAMES[2]])


def test_a_silo_that_refuses_is_not_said_to_be_in(tmp_path):
    """Also while no round counts: since which round, and why."""
    local = made(tmp_path, "fedamp", 3)
    local.serve(rounds=1)
    local.paths[1].unlink()
    looks, seen = iter(range(9)), []

    def online():
        if next(looks) == 2:
            seen.append(json.loads((tmp_path / "record/status.json").read_text())["silos"])
            raise Killed
        return [0, 1, 2]

    local.online = online
    with pytest.raises(Killed):
        local.serve()
    (silos,) = seen
    assert [silo["state"] for silo in silos] == ["in", "refuses", "in"]
    assert (silos[1]["since"], silos[1]["reason"]) == (2, "its data can't be read")
    assert silos[1]["since_time"] is not None
    assert "silo-1 refuses: its data can't be read" in log_of(tmp_path / "record")


def test_a_silo_can_not_push_the_servers_numbers_out_of_reach(tmp_path):
    """The number in a refusal is a claim: beyond what any server could have sent it is ignored."""
    from fedamp.federation.server.outbox import MOST, Life, Outbox

    outbox = Outbox(None, {}, Life("x", 1))
    before = outbox.serial
    assert not outbox.catch_up(MOST)
    assert not outbox.catch_up(before)
    assert outbox.serial == before
    assert outbox.catch_up(before + 5)
    assert outbox.serial > before + 5
