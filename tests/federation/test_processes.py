"""Servers and silos as real processes, with TLS and keys: who gets in, and that nothing stays behind.

The app is a tiny one of the test's own, so that what is tested here is the handling of processes.
"""

import json
import os
import re
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
from fedamp.federation.plan_files import read_federation
from fedamp.federation.processes import launch, locks, logs, ports
from fedamp.federation.processes.waiting import wait_until
from federation.provisioned import NAMES, make_plan, silo_data

SERVER_APP = """
import hashlib, json, os, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()
folder = Path(os.environ["FEDAMP_FEDERATION"])
wish = json.loads((folder / "wish.json").read_text())
(folder / "record").mkdir(exist_ok=True)

def say(text):
    with (folder / "record" / "log.txt").open("a") as file:
        file.write(text + "\\n")

@app.main()
def main(grid, context):
    say("the app is here")
    end = time.time() + wish["seconds"]
    while time.time() < end:
        nodes = list(grid.get_nodes())
        if len(nodes) >= wish["silos"]:
            break
        time.sleep(0.5)
    say("seen: " + json.dumps([hashlib.sha256(node.public_key).hexdigest() for node in nodes]))
    content = RecordDict({"config": ConfigRecord({"agreement": "{}"})})
    messages = [Message(content, dst_node_id=node.node_id, message_type="query") for node in nodes]
    for reply in grid.send_and_receive(messages, timeout=60) if messages else []:
        say("reply: " + (str(reply.error) if reply.has_error() else str(reply.content["refusal"]["reason"])))
    if wish.get("fail"):
        raise RuntimeError("on purpose")
    while wish.get("stay") and time.time() < end:
        time.sleep(0.5)
"""
# What a server that is up to no good would send to a silo.
CLIENT_APP = """
from pathlib import Path
from flwr.clientapp import ClientApp

Path({marker!r}).touch()
app = ClientApp()
"""


@pytest.fixture
def federation(tmp_path) -> Path:
    folder = tmp_path / "fed"
    provision.init(folder, NAMES, make_plan(), Rules(), ["localhost"], ports.free_port(), None)
    app = folder / "server/app/fedamp_app"
    (app / "server_app.py").write_text(SERVER_APP)
    (app / "client_app.py").write_text(CLIENT_APP.format(marker=str(tmp_path / "marker")))
    silo_data(tmp_path / "own.npz")
    return folder


def ask_for(folder: Path, **wish) -> None:
    (folder / "wish.json").write_text(json.dumps({"seconds": 90, "silos": 0, **wish}))


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
def test_a_silo_gets_in_and_a_stranger_does_not(federation, tmp_path):
    ask_for(federation, silos=1)
    stranger = tmp_path / "stranger"
    shutil.copytree(federation / "bundles" / NAMES[1], stranger)
    for file, half in zip(("key", "key.pub"), silo_keys.make_key_pair(NAMES[1]), strict=True):
        (stranger / file).write_bytes(half)
    data, bundle = tmp_path / "own.npz", federation / "bundles" / NAMES[0]
    with (
        Command(tmp_path / "up.txt", "federation", "up", federation) as up,
        Command(tmp_path / "stranger.txt", "silo", "up", stranger, "--data", data) as outside,
    ):
        assert up.shows("the app is here"), up.text
        assert outside.shows("trying again in"), outside.text
        assert "the connection ended (the server does not know this silo's key" in outside.text
        with Command(tmp_path / "silo.txt", "silo", "up", bundle, "--data", data) as silo:
            assert up.shows("finished; the record is in"), up.text + silo.text
            assert up.process.wait(30) == 0
    # Who came is known by its key alone, and the stranger is not among them.
    assert f'seen: ["{read_federation(federation).members[0].key}"]' in up.text
    # The silo answered with fedamp's own app: what the server sent was not run.
    assert "reply: its plan differs" in up.text
    assert not (tmp_path / "marker").exists()
    assert "connected; waiting for work" in silo.text
    assert "not taking part" in silo.text
    assert nothing_left(tmp_path), family(tmp_path)


@pytest.mark.slow
def test_one_up_at_a_time_and_stop_ends_it(federation, tmp_path, fedamp_command):
    ask_for(federation, stay=True)
    with Command(tmp_path / "up.txt", "federation", "up", federation) as up:
        assert up.shows("the app is here"), up.text
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
    ask_for(federation, stay=True)
    with Command(tmp_path / "up.txt", "federation", "up", federation) as up:
        assert up.shows("the app is here"), up.text
        assert any("flower-superexec" in line for line in family(federation))
        assert wait_until(lambda: any("flwr-serverapp" in line for line in family(federation)), 20)
        up.process.kill()
        up.process.wait()
    assert nothing_left(federation), family(federation)

    ask_for(federation)
    with Command(tmp_path / "again.txt", "federation", "up", federation) as again:
        assert again.shows("finished; the record is in"), again.text
        assert again.process.wait(30) == 0
    assert nothing_left(federation), family(federation)


@pytest.mark.slow
def test_a_failing_app_and_a_lost_server_are_told(federation, tmp_path):
    ask_for(federation, fail=True)
    with Command(tmp_path / "up.txt", "federation", "up", federation) as up:
        assert up.shows("it continues after the last round"), up.text
        assert up.process.wait(30) == 1
    assert "finished:failed" in up.text
    assert "on purpose" in up.text

    ask_for(federation, stay=True)
    with Command(tmp_path / "lost.txt", "federation", "up", federation) as lost:
        assert lost.shows("the app is here"), lost.text
        (server,) = [line for line in family(federation) if re.search(r"^\d+ \S*python\S* \S*flower-superlink ", line)]
        os.kill(int(server.split()[0]), signal.SIGKILL)
        assert lost.process.wait(30) == 1
    assert "server lost" in lost.text
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


def test_without_flower_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ValueError, match=re.escape("pip install 'fedamp[federation]'")):
        launch.flower_program("flower-superlink")
