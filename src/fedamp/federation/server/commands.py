"""What the operator does with a federation's server: up, status, stop, admit.

DIR/server/run/  up.lock, serverapp.log (the federation), and what Flower's server keeps there
DIR/record/      what the server app writes: status.json, log.txt with a line per round, the run's record
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedamp.errors import UserError
from fedamp.federation.plan_files import read_federation
from fedamp.federation.processes import launch, locks, logs
from fedamp.federation.processes.waiting import wait_until
from fedamp.federation.server.flower_server import HERE as HERE
from fedamp.federation.server.flower_server import NAME, REGISTERED, FlowerServer, server_of
from fedamp.files import read_json

STOPPED = 60.0  # seconds to wait for
TICK = 0.5
Say = Callable[[str], None]


def up(folder: Path, host: str, port: int | None, say: Say) -> int:
    """Run a federation to its end, or to Ctrl-C; return the exit code."""
    server = server_of(folder, host, port)
    with launch.ending_in_order(), locks.only_one(server.lock, f"the federation in {folder}"):
        follower = logs.Follower(server.folder / "record" / "log.txt")
        with server.started() as process:
            _register_all(server, say)
            run = server.begin()
            say(f"the server is listening on {host}:{server.port}; waiting for silos")
            try:
                state, details = _follow(server, run, process, follower, say)
            except KeyboardInterrupt:
                if process.poll() is None:
                    server.ask("stop", run, NAME)
                raise
        return _report_end(server, state, details, say)


def _register_all(server: FlowerServer, say: Say) -> None:
    """Register the silos' keys that are new to the server's database; a silo whose key file was deleted stays out."""
    file = server.run / REGISTERED
    known = read_json(file) or {}
    for member in read_federation(server.folder).members:
        if not (server.folder / "server" / "keys" / f"{member.name}.pub").exists():
            say(f"{member.name} is left out: server/keys/{member.name}.pub does not exist")
        elif known.get(member.name) != member.key:
            server.register(member.name)
            known[member.name] = member.key
            file.write_text(json.dumps(known))


def _follow(
    server: FlowerServer,
    run: str,
    process: subprocess.Popen[bytes],
    follower: logs.Follower,
    say: Say,
) -> tuple[str, str]:
    """Pass on the federation's log lines until the run has ended; return its state and Flower's details."""
    log = logs.begin_log(server.run / "serverapp.log")
    command = [launch.flower_program("flwr"), "log", run, NAME, "--stream"]
    while True:
        # Flower's stream of the server app's output ends when the run does: no need to ask again and again.
        log.unlink(missing_ok=True)
        with launch.running(command, server.env, log, 1.0) as stream:
            while stream.poll() is None and process.poll() is None:
                wait_until(lambda: stream.poll() is not None, TICK)
                for line in follower.lines():
                    say(line)
        if process.poll() is not None:
            return "server lost", f"Flower's server ended with {process.poll()}"
        # The run's end is written a moment after its last line.
        time.sleep(TICK)
        state, details = server.state_of(run)
        if state.startswith("finished"):
            for line in follower.lines():
                say(line)
            return state, details


def _report_end(server: FlowerServer, state: str, details: str, say: Say) -> int:
    if state == "finished:completed":
        record = server.folder / "record"
        say(f"finished; the record is in {record}; for a report, run: fedamp report {record}")
        return 0
    log = server.run / ("superlink.log" if state == "server lost" else "serverapp.log")
    say(f"the run ended early ({state}{': ' + details if details else ''}); the end of {log}:")
    say(logs.tail(log))
    say("start it again, and it continues after the last round that counted")
    return 1


def status(folder: Path) -> tuple[int | None, Mapping[str, Any]]:
    """Return the process of `up`, if there is one, and the status that the server app last wrote."""
    server = server_of(folder)
    written = read_json(server.folder / "record" / "status.json") or {}
    return locks.holder(server.lock), written


def stop(folder: Path) -> bool:
    """End a federation's `up`; return whether there was one."""
    server = server_of(folder)
    pid = locks.holder(server.lock)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not wait_until(lambda: locks.holder(server.lock) is None, STOPPED):
        raise UserError(f"process {pid} did not end within {STOPPED:.0f} s; to end it: kill -9 {pid}")
    return True


def admit(folder: Path, name: str) -> None:
    """Let a silo that was set aside take part again, from the next round on."""
    federation = read_federation(folder)
    names = [member.name for member in federation.members]
    if name not in names:
        raise UserError(f"{folder} has no silo {name!r}; expected one of {', '.join(names)}")
    wish = folder / "admit" / name
    wish.parent.mkdir(parents=True, exist_ok=True)
    wish.touch()
