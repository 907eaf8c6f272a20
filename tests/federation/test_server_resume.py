"""A server that is stopped, in whatever way, continues as if it had not been; a damaged record is refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from fedamp.errors import UserError
from fedamp.federation.server.app import serve
from fedamp.records.reading import read_lines, read_run
from federation.inprocess import Local, engine_rounds, plan_of, write_silos
from helpers import SOME_AT_ONCE


class Killed(BaseException):
    """As SIGKILL: nothing gets to tidy up."""


@pytest.mark.parametrize("method", SOME_AT_ONCE)
@pytest.mark.parametrize(
    ("moment", "when"), [("before the checkpoint", 1), ("before the checkpoint", 2), ("after the checkpoint", 2)]
)
@pytest.mark.many
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


def test_a_record_that_is_lost_is_not_begun_again_without_a_word(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data)
    (tmp_path / "server").mkdir()
    local.serve(rounds=1)
    shutil.move(tmp_path / "record", tmp_path / "lost")
    with pytest.raises(UserError, match="is missing or empty, though this federation has played rounds"):
        local.serve()
    (tmp_path / "server/begun").unlink()  # as the message says
    assert local.serve().state.k == 2
    assert (tmp_path / "server/begun").exists()


def test_a_damaged_checkpoint_is_told(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=4), data)
    local.serve(rounds=3)
    newest = max((tmp_path / "record").glob("checkpoint-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:100])
    local.serve()
    told = (tmp_path / "record" / "log.txt").read_text()
    assert "continuing after round 2" in told
    assert "later checkpoints are damaged or half written, and not used: those of round 3" in told


def test_an_older_record_is_told_apart_from_a_lost_memory(tmp_path):
    """With a method that remembers: the cure is another one."""
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, "scaffold", rounds=6), data)
    local.serve(rounds=2)
    shutil.copytree(tmp_path / "record", tmp_path / "copy")
    local.serve(rounds=5)
    shutil.rmtree(tmp_path / "record")
    shutil.copytree(tmp_path / "copy", tmp_path / "record")
    local.online = Switch(local)
    with pytest.raises(Enough):
        local.serve()
    told = (tmp_path / "record" / "log.txt").read_text()
    assert "silo-0 refuses: the server goes on from an earlier round than it remembers" in told
    assert "fedamp federation rewind FOLDER 2" in told
    assert "readmit" not in told
    assert (local.houses[0].folder / "log.txt").read_text().count("not taking part: the server continues") == 1


class Enough(BaseException):
    """The test has seen what it wanted to see."""


class Switch:
    """All silos, for a few looks; then no more."""

    def __init__(self, local):
        self.local, self.looks = local, 0

    def __call__(self):
        self.looks += 1
        if self.looks > 6:
            raise Enough
        return list(self.local.houses)
