"""What a silo writes down for programs to read: in order, whole, and never the reason for a lost round."""

import errno
import os

from fedamp.federation.silo import diary
from federation.watched import Watched

METRICS = {"num-examples": 8, "num-test": 3, "train-seconds": 0.5, "test.own.accuracy": 0.5, "test.own.loss": 0.1}


def test_rounds_are_in_order_whatever_is_played_again(tmp_path):
    for k in (1, 2, 3, 4, 3):
        diary.note_round(tmp_path, k, "accuracy", {**METRICS, "test.own.accuracy": k / 8})
    assert [(line["round"], line["test"]) for line in diary.rounds(tmp_path)] == [
        (1, {"own": 1 / 8}), (2, {"own": 2 / 8}), (3, {"own": 3 / 8}),
    ]  # fmt: skip


def test_a_line_that_was_cut_off_is_left_behind(tmp_path):
    diary.note_round(tmp_path, 1, "accuracy", METRICS)
    with (tmp_path / diary.ROUNDS).open("a") as file:
        file.write('{"round": 2, "te')
    diary.note_round(tmp_path, 3, "accuracy", METRICS)
    assert [line["round"] for line in diary.rounds(tmp_path)] == [1, 3]


def test_a_disk_that_can_not_be_written_does_not_end_a_round(tmp_path):
    (tmp_path / "file").touch()
    diary.note_round(tmp_path / "file", 1, "accuracy", METRICS)
    diary.note_refusal(tmp_path / "file", "public", "private")
    diary.note_connection(tmp_path / "file", "connected")
    assert diary.rounds(tmp_path / "file") == []


def test_a_line_needs_room_for_itself_alone(tmp_path, monkeypatch):
    """On a disk that is nearly full the file can't be written anew, and one line more can."""
    diary.note_round(tmp_path, 1, "accuracy", METRICS)
    monkeypatch.setattr(diary, "write_whole", full)
    diary.note_round(tmp_path, 2, "accuracy", METRICS)
    assert [line["round"] for line in diary.rounds(tmp_path)] == [1, 2]
    assert diary.new_fault(tmp_path) == ""


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_that_rounds_can_not_be_written_down_is_said_once(tmp_path, monkeypatch):
    watched = Watched(tmp_path, ["a", "b", "c"], rounds=1)
    watched.play()
    run = watched.bundle(0) / "run"
    add, begun = diary._add, []

    def broken(path, *rest):
        begun.append(path)
        return full() if path.parent == run and len(begun) <= 6 else add(path, *rest)

    monkeypatch.setattr(diary, "_add", broken)
    watched.serve(rounds=5)
    log = (run / "log.txt").read_text()
    assert log.count("rounds.jsonl can't be written (No space left on device); make room") == 1
    assert "rounds.jsonl" not in (watched.bundle(1) / "run/log.txt").read_text()
    assert diary.rounds(run)[-1]["round"] == 6
    assert run not in diary._FAULTS


def test_the_last_refusals_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(diary, "KEPT", 4)
    for number in range(diary.KEPT + 5):
        diary.note_refusal(tmp_path, "it failed", f"Traceback\n  line\nValueError: {number}\n")
    kept = [(line["number"], line["reason"]) for line in diary.refusals(tmp_path)]
    assert (len(kept), kept[-1]) == (diary.KEPT, (diary.KEPT + 5, f"ValueError: {diary.KEPT + 4}"))


def test_a_silo_notes_its_rounds_and_its_refusals(tmp_path):
    watched = Watched(tmp_path, ["a", "b", "c"], alone=[0], rounds=2, validation=0.25)
    watched.play()
    lines = diary.rounds(watched.bundle(0) / "run")
    assert [(line["round"], line["ended"]) for line in lines] == [(1, False), (2, False), (3, True)]
    assert lines[1]["test"].keys() == {"own", "received", "between", "alone"}
    assert lines[2]["test"].keys() == {"received"}
    assert "alone" not in diary.rounds(watched.bundle(1) / "run")[0]["test"]
    assert (lines[0]["samples"]["train"], lines[0]["metric"]) == (14, "accuracy")
    watched.paths[0].write_bytes(b"no data")
    watched.serve(rounds=3)
    (refused, *_) = diary.refusals(watched.bundle(0) / "run")
    assert refused["told"] == "its data can't be read"
    assert str(watched.paths[0]) in refused["reason"]
