"""Servers and silos as real processes, with TLS and keys: who gets in, and that nothing stays behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedamp.config.reply_limits import Rules
from fedamp.federation import provision, silo_keys
from fedamp.federation.processes import launch, locks, logs, ports
from fedamp.federation.processes.waiting import wait_until
from federation.provisioned import NAMES, make_plan, silo_data


@pytest.fixture
def federation(tmp_path) -> Path:
    folder = tmp_path / "fed"
    provision.init(folder, NAMES, make_plan(), Rules(min_silos=2), ["localhost"], ports.free_port(), None)
    silo_data(tmp_path / "own.npz")
    return folder


WAITING = "waiting for silos: 0 here, 2 needed"


class Command:
    """A command of fedamp in a process of its own, its output in a file."""

    def __init__(self, log: Path, *words: object) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fedamp", *map(str, words)],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def text(self) -> str:
        return self.log.read_text()

    def shows(self, word: str, seconds: float = 60) -> bool:
        return wait_until(lambda: word in self.text or self.process.poll() is not None, seconds) and (word in self.text)


def family(folder: Path) -> list[str]:
    """Return the processes that have to do with a folder, by their command lines or environments."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        try:
            words = (place / "cmdline").read_bytes()
            if str(folder).encode() in words + (place / "environ").read_bytes():
                found.append(f"{place.name} {words.replace(bytes(1), b' ').decode()}")
        except OSError:
            continue
    return found


def nothing_left(folder: Path, seconds: float = 20) -> bool:
    return wait_until(lambda: not family(folder), seconds)


@pytest.mark.slow
def test_silos_get_in_and_a_stranger_does_not(federation, tmp_path):
    stranger = tmp_path / "stranger"
    shutil.copytree(federation / "bundles" / NAMES[2], stranger)
    for file, half in zip(("key", "key.pub"), silo_keys.make_key_pair(NAMES[2]), strict=True):
        (stranger / file).write_bytes(half)
    data, bundles = tmp_path / "own.npz", [federation / "bundles" / name for name in NAMES]
    with (
        Command(tmp_path / "up.txt", "federation", "up", federation) as up,
        Command(tmp_path / "stranger.txt", "silo", "up", stranger, "--data", data) as outside,
    ):
        assert up.shows(WAITING), up.text
        assert outside.shows("trying again in"), outside.text
        assert "the connection ended (the server does not know this silo's key" in outside.text
        with (
            Command(tmp_path / "a.txt", "silo", "up", bundles[0], "--data", data) as silo,
            Command(tmp_path / "b.txt", "silo", "up", bundles[1], "--data", data),
        ):
            assert up.shows("finished; the record is in"), up.text + silo.text
            assert up.process.wait(30) == 0
    assert "connected; waiting for work" in silo.text
    # Who came is known by its key alone, and the stranger is not among them.
    assert f"{NAMES[2]} has not joined yet" in up.text
    assert f"{NAMES[2]} is here" not in up.text
    assert nothing_left(tmp_path), family(tmp_path)


@pytest.mark.slow
def test_one_up_at_a_time_and_stop_ends_it(federation, tmp_path, fedamp_command):
    with Command(tmp_path / "up.txt", "federation", "up", federation) as up:
        assert up.shows(WAITING), up.text
        code, _, err = fedamp_command("federation", "up", federation)
        assert code == 2
        assert err == (
            f"fedamp: the federation in {federation} is already running, as process {up.process.pid}; stop it first\n"
        )
        assert f"the server is up, as process {up.process.pid}" in fedamp_command("federation", "status", federation)[1]
        began = time.monotonic()
        assert fedamp_command("federation", "stop", federation)[1] == "stopped\n"
        assert time.monotonic() - began < 30
        assert up.process.wait(10) == 130
    assert nothing_left(federation), family(federation)
    assert "the server is not up" in fedamp_command("federation", "status", federation)[1]


@pytest.mark.slow
def test_after_kill_9_nothing_stays_and_the_next_up_goes_on(federation, tmp_path):
    """Silos that stay connected find the new server by themselves."""
    data, bundles = tmp_path / "own.npz", [federation / "bundles" / name for name in NAMES]
    with Command(tmp_path / "a.txt", "silo", "up", bundles[0], "--data", data) as silo:
        with Command(tmp_path / "up.txt", "federation", "up", federation) as up:
            assert up.shows(f"{NAMES[0]} is here"), up.text
            assert len(family(federation / "server")) <= 1  # one process is all there is
            up.process.kill()
            up.process.wait()
        with (
            Command(tmp_path / "again.txt", "federation", "up", federation) as again,
            Command(tmp_path / "b.txt", "silo", "up", bundles[1], "--data", data),
        ):
            assert again.shows("finished; the record is in", 120), again.text + silo.text
            assert again.process.wait(30) == 0
        silo.process.kill()
        silo.process.wait()
    assert nothing_left(federation), family(federation)


def test_a_port_in_use_is_one_line(federation, fedamp_command):
    port = json.loads((federation / "server/address.json").read_text())["listen"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        code, _, err = fedamp_command("federation", "up", federation)
    assert code == 2
    assert err.startswith(f"fedamp: can't listen on 127.0.0.1:{port} (Address already in use)")
    assert len(err.splitlines()) == 1
    assert family(federation) == []


def test_the_reaper_ends_whatever_was_started(tmp_path):
    """A family that hides: a grandchild in a session of its own, deaf to SIGTERM, whose parent has ended."""
    deaf = "import signal, time, sys; signal.signal(15, 1); print('up', flush=True); time.sleep(60)"
    middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deaf!r}], start_new_session=True)"
    command = [sys.executable, "-c", f"{middle}; import time; time.sleep(60)", str(tmp_path)]
    log = tmp_path / "log.txt"
    with launch.running(command, {**os.environ, "MARK": str(tmp_path)}, log, grace=0.5):
        assert wait_until(lambda: logs.tail(log) == "up", 20)
        assert len(family(tmp_path)) >= 3
    assert family(tmp_path) == []


def test_the_reaper_notices_that_its_starter_is_gone(tmp_path):
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom fedamp.federation.processes import launch\n"
        f"with launch.running([sys.executable, '-c', 'print(1, flush=True); import time; time.sleep(60)'], "
        f"dict(os.environ), Path({str(tmp_path / 'log.txt')!r})):\n    time.sleep(60)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "MARK": str(tmp_path)})
    try:
        assert wait_until(lambda: logs.tail(tmp_path / "log.txt") == "1", 30)
    finally:
        starter.kill()
        starter.wait()
    assert nothing_left(tmp_path, 10), family(tmp_path)


def test_the_exit_code_comes_through(tmp_path):
    with launch.running([sys.executable, "-c", "raise SystemExit(7)"], os.environ, tmp_path / "log") as process:
        assert process.wait(20) == 7


def test_a_follower_hands_on_whole_lines_once(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("before\n")
    follower = logs.Follower(path)
    assert follower.lines() == []
    with path.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert follower.lines() == ["one"]
        file.write("o\n")
    assert follower.lines() == ["two"]
    path.write_text("x\n")
    assert follower.lines() == ["x"]
    assert logs.Follower(tmp_path / "none").lines() == []


def test_a_lock_is_held_by_one_and_goes_with_it(tmp_path):
    lock = tmp_path / "run/up.lock"
    assert locks.holder(lock) is None
    with locks.only_one(lock, "it"):
        assert locks.holder(lock) == os.getpid()
        with (
            pytest.raises(ValueError, match=f"it is already running, as process {os.getpid()}"),
            locks.only_one(lock, "it"),
        ):
            pass
    assert locks.holder(lock) is None


@pytest.mark.slow
def test_a_silo_that_leaves_is_missed_at_once_and_let_in_again_at_once(federation, tmp_path):
    """Its process says so when it is ended; else the server would wait a minute for its next sign of life."""
    bundle, data = federation / "bundles" / NAMES[0], tmp_path / "own.npz"
    with Command(tmp_path / "up.txt", "federation", "up", federation) as up:
        with Command(tmp_path / "a.txt", "silo", "up", bundle, "--data", data) as silo:
            assert up.shows(f"{NAMES[0]} is here"), up.text
        with Command(tmp_path / "again.txt", "silo", "up", bundle, "--data", data) as silo:
            assert silo.shows("connected; waiting for work", 30), silo.text
            assert "the connection ended" not in silo.text
