"""Logs of bounded size: no line is lost or told twice, whoever writes and whoever reads."""

import os
import subprocess
import sys
import threading

import pytest

from fedamp.federation.processes import launch, logs, rotation
from fedamp.federation.processes.waiting import wait_until


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(rotation, "LIMIT", 1000)


def text_of(path) -> str:
    """Return all that is kept of a log, the oldest first."""
    return "".join(file.read_text() for file in rotation.files(path)[::-1] if file.exists())


def test_a_log_is_bounded_and_keeps_its_newest_lines(tmp_path):
    path = tmp_path / "log.txt"
    for i in range(1000):
        rotation.append(path, f"line {i}\n".encode())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log.txt", "log.txt.1", "log.txt.2", "log.txt.3"]
    assert all(0 < file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    kept = text_of(path).splitlines()
    assert kept == [f"line {i}" for i in range(1000 - len(kept), 1000)]
    assert len(kept) > 3 * 1000 // len("line 999\n")


@pytest.mark.parametrize("every", [1, 7, 150])  # 150: a file is rotated more than once between two looks
def test_a_follower_hands_on_each_line_once(tmp_path, every):
    path, seen = tmp_path / "log.txt", []
    follower = logs.Follower(path)
    for i in range(600):
        rotation.append(path, f"line {i}\n".encode())
        if i % every == 0:
            seen += follower.lines()
    assert seen + follower.lines() == [f"line {i}" for i in range(600)]
    assert follower.lines() == []
    late = logs.Follower(path)
    rotation.append(path, b"one more\n")
    assert late.lines() == follower.lines() == ["one more"]


def test_a_follower_reads_while_others_write(tmp_path, monkeypatch):
    """Two threads write, each in its order; every line is read once."""
    monkeypatch.setattr(rotation, "KEPT", 40)
    path, seen = tmp_path / "log.txt", []
    follower = logs.Follower(path)
    threads = [
        threading.Thread(target=lambda name=name: [rotation.append(path, f"{name} {i}\n".encode()) for i in range(800)])
        for name in "ab"
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen += follower.lines()
    seen += follower.lines()
    assert sorted(seen) == sorted(f"{name} {i}" for name in "ab" for i in range(800))


def test_a_line_that_comes_in_pieces_stays_one(tmp_path):
    path = tmp_path / "log.txt"
    follower = logs.Follower(path)
    with path.open("ab") as file:
        file.write(b"x" * 990 + b"begun")
    assert follower.lines() == []
    rotation.append(path, b" and ended\n")
    assert follower.lines() == ["x" * 990 + "begun and ended"]


def test_a_program_writes_to_a_bounded_log(tmp_path, monkeypatch):
    """Whatever a program prints is in the log, in order, and no line is torn in two by a rotation."""
    monkeypatch.setattr(rotation, "BLOCK", 100)  # however much the program has written by the first look
    log = tmp_path / "run/program.log"
    program = "import os\nfor i in range(300):\n    os.write(1, f'out {i}\\n'.encode())\nos.write(2, b'the end')"
    follower, seen = logs.Follower(log), []
    with launch.running([sys.executable, "-c", program], os.environ, log) as process:
        assert wait_until(lambda: seen.extend(follower.lines()) or process.poll() is not None, 30, 0.01)
        assert wait_until(lambda: logs.tail(log, 1) == "the end", 5)
    assert seen + follower.lines() == [f"out {i}" for i in range(300)]
    assert follower.rest == b"the end"
    older = [file.read_bytes() for file in rotation.files(log)[1:] if file.exists()]
    assert len(older) > 1
    assert all(text.endswith(b"\n") for text in older)


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    path = tmp_path / "log.txt"
    program = (
        "import sys; from pathlib import Path; from fedamp.federation.processes import rotation\n"
        "rotation.LIMIT, rotation.KEPT = 1000, 50\n"
        "for i in range(500): rotation.append(Path(sys.argv[1]), f'{sys.argv[2]} {i}\\n'.encode())"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, path, name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    found = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert sorted(found) == sorted(f"{name} {i}" for name in "ab" for i in range(500))


def test_a_full_disk_stops_no_program(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rotation, "append", full)
    command = [sys.executable, "-c", "print('x' * 500_000)"]
    with launch.running(command, os.environ, tmp_path / "log") as process:
        assert wait_until(lambda: process.poll() is not None, 30)
        assert process.poll() == 0


def test_a_restart_keeps_the_log_of_the_time_before(tmp_path):
    path = tmp_path / "log.txt"
    follower = logs.Follower(path)
    for i in range(3):
        logs.begin_log(path)
        rotation.append(path, f"start {i}\n".encode())
    assert follower.lines() == ["start 0", "start 1", "start 2"]
    assert (tmp_path / "log.txt.2").read_text() == "start 0\n"


def test_a_log_that_was_moved_away_is_not_moved_twice(tmp_path, monkeypatch):
    """Two processes want to rotate at once: the second finds that it is done, and its line goes to the moved file."""
    path = tmp_path / "log.txt"
    rotation.append(path, b"x" * 990 + b"\n")
    real = rotation.fcntl.flock

    def late(file, kind):  # meanwhile the other one rotates
        monkeypatch.setattr(rotation.fcntl, "flock", real)
        rotation.append(path, b"the other's line\n")
        real(file, kind)

    monkeypatch.setattr(rotation.fcntl, "flock", late)
    rotation.append(path, b"mine, late\n")
    assert path.read_text() == "the other's line\n"
    assert (tmp_path / "log.txt.1").read_text().endswith("x\nmine, late\n")
    assert not (tmp_path / "log.txt.2").exists()
