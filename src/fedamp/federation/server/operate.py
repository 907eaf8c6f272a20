"""The server's side of a running federation: up, status, stop, admit.

DIR/server/run/  up.lock, Flower's home and database, superlink.log (Flower's server), serverapp.log (the federation)
DIR/record/      what the server app writes: status.json, log.txt with a line a round, the run's record
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedamp import checks
from fedamp.errors import UserError
from fedamp.federation.plan import read_federation
from fedamp.federation.processes import programs
from fedamp.federation.provision import read_address
from fedamp.files import read_json

HEALTHY, ANSWER, STOPPED = 60.0, 60.0, 60.0  # seconds to wait for
TICK = 0.5
NAME = "fedamp"  # of the one server in Flower's configuration
HERE, EVERYWHERE = "127.0.0.1", "0.0.0.0"  # Flower's own parts reach the server at 127.0.0.1, so these two will do
DATABASE, REGISTERED = "state.db", "registered.json"  # Flower's memory, and the keys that are in it
Say = Callable[[str], None]


@dataclass(frozen=True)
class Server:
    """Flower's server of a federation, and the way to talk to it."""

    folder: Path
    host: str
    port: int

    @property
    def run(self) -> Path:
        """Where all that passes is kept."""
        return self.folder / "server" / "run"

    @property
    def lock(self) -> Path:
        """Held as long as `up` runs."""
        return self.run / "up.lock"

    @property
    def env(self) -> dict[str, str]:
        """The environment of Flower's programs; the server app finds its federation in it."""
        code = self.folder / "server" / "code"
        return programs.environment(self.run / "flwr", code, FEDAMP_FEDERATION=str(self.folder))

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start it, wait until it answers, and end it with the block."""
        programs.check_port(self.host, self.port)
        if not (self.run / DATABASE).exists():
            (self.run / REGISTERED).unlink(missing_ok=True)
        server = self.folder / "server"
        home = self.run / "flwr"
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "127.0.0.1:{self.port}"\n'
            f"root-certificates = {json.dumps(str(server / 'ca.crt'), ensure_ascii=False)}\n"
        )
        command = [
            *(programs.program("flower-superlink"), "--host", self.host, "--port", str(self.port)),
            *("--ssl-ca-certfile", str(server / "ca.crt"), "--ssl-certfile", str(server / "server.crt")),
            *("--ssl-keyfile", str(server / "server.key"), "--enable-supernode-auth"),
            *("--database", str(self.run / DATABASE), "--disable-runtime-dependency-installation"),
        ]
        log = programs.begin_log(self.run / "superlink.log")
        with programs.kept(command, self.env, log) as process:
            programs.wait_until(lambda: self.healthy() or process.poll() is not None, HEALTHY)
            if not self.healthy():
                raise UserError(f"Flower's server did not start; the end of {log}: {programs.tail(log, 5)}")
            yield process

    def healthy(self) -> bool:
        """Return whether the server answers."""
        context = ssl.create_default_context(cafile=str(self.folder / "server" / "ca.crt"))
        # No proxy: the server is on this very machine.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(f"https://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def ask(self, *arguments: str) -> dict[str, Any]:
        """Give one of Flower's commands, and return its answer."""
        command = [programs.program("flwr"), *arguments, "--format", "json"]
        said = f"no answer within {ANSWER:.0f} s"
        try:
            done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=ANSWER, cwd=self.run)
            said = programs.COLOUR.sub("", done.stdout + done.stderr).strip()
            answer: dict[str, Any] = json.loads(done.stdout)
        except (ValueError, subprocess.TimeoutExpired):
            return {"success": False, "error-message": said}
        return answer

    def register(self, name: str) -> None:
        """Let a silo's key in; one that is known already is fine."""
        key = self.folder / "server" / "keys" / f"{name}.pub"
        answer = self.ask("supernode", "register", str(key), NAME, "--name", name)
        message = str(answer.get("error-message", ""))
        if not answer.get("success") and "already" not in message:
            raise UserError(f"the key of silo {name} ({key}) could not be registered: {message}")

    def unfinished(self) -> list[str]:
        """Return the runs that have not ended."""
        runs = self.ask("list", NAME).get("runs", [])
        return [run["run-id"] for run in runs if not run["status"].startswith("finished")]

    def state_of(self, run: str) -> tuple[str, str]:
        """Return a run's state and what is said of it."""
        runs = self.ask("list", NAME, "--run-id", run).get("runs", [])
        return (runs[0]["status"], runs[0].get("status-details", "")) if runs else ("unknown", "")

    def begin(self) -> str:
        """Start a run of the federation's app, and return its number."""
        # Of a server that was killed: its silos would still be asked to train for a run that nobody hears.
        for run in self.unfinished():
            self.ask("stop", run, NAME)
        answer = self.ask("run", str(self.folder / "server" / "app"), NAME)
        if not answer.get("run-id"):
            raise UserError(f"the run could not be started: {answer.get('error-message', answer)}")
        return str(answer["run-id"])


def server_of(folder: Path, host: str = HERE, port: int | None = None) -> Server:
    """Return the server of a federation's folder."""
    folder = folder.absolute()
    read_federation(folder)
    address = read_address(folder)
    checks.one_of("host to listen on", host, [HERE, EVERYWHERE])
    if port is not None and not 0 < port < 1 << 16:
        raise UserError(f"port is {port}; expected a number from 1 to 65535")
    return Server(folder, host, port or (address.listen if host == HERE else address.port))


def up(folder: Path, host: str, port: int | None, say: Say) -> int:
    """Run a federation to its end, or to Ctrl-C; return the exit code."""
    server = server_of(folder, host, port)
    with programs.ending_in_order(), programs.only_one(server.lock, f"the federation in {folder}"):
        follower = programs.Follower(server.folder / "record" / "log.txt")
        with server.started() as process:
            _register_all(server, say)
            run = server.begin()
            say(f"the server listens on {host}:{server.port}; waiting for silos")
            try:
                state, details = _follow(server, run, process, follower, say)
            except KeyboardInterrupt:
                if process.poll() is None:
                    server.ask("stop", run, NAME)
                raise
        return _tell_end(server, state, details, say)


def _register_all(server: Server, say: Say) -> None:
    """Register the silos' keys that are new to the server's database; one whose file was taken away stays out."""
    file = server.run / REGISTERED
    known = read_json(file) or {}
    for member in read_federation(server.folder).members:
        if not (server.folder / "server" / "keys" / f"{member.name}.pub").exists():
            say(f"{member.name} stays out: there is no server/keys/{member.name}.pub")
        elif known.get(member.name) != member.key:
            server.register(member.name)
            known[member.name] = member.key
            file.write_text(json.dumps(known))


def _follow(
    server: Server,
    run: str,
    process: subprocess.Popen[bytes],
    follower: programs.Follower,
    say: Say,
) -> tuple[str, str]:
    """Hand on the federation's lines until the run has ended; return how."""
    log = programs.begin_log(server.run / "serverapp.log")
    command = [programs.program("flwr"), "log", run, NAME, "--stream"]
    while True:
        # Flower's stream of the server app's output ends when the run does: no need to ask again and again.
        log.unlink(missing_ok=True)
        with programs.kept(command, server.env, log, 1.0) as stream:
            while stream.poll() is None and process.poll() is None:
                programs.wait_until(lambda: stream.poll() is not None, TICK)
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


def _tell_end(server: Server, state: str, details: str, say: Say) -> int:
    if state == "finished:completed":
        record = server.folder / "record"
        say(f"finished; the record is in {record}, and a page of it comes with: fedamp report {record}")
        return 0
    log = server.run / ("superlink.log" if state == "server lost" else "serverapp.log")
    say(f"the run ended early ({state}{': ' + details if details else ''}); the end of {log}:")
    say(programs.tail(log))
    say("started again, it goes on after the last round that was counted")
    return 1


def status(folder: Path) -> tuple[int | None, Mapping[str, Any]]:
    """Return the process of `up`, if there is one, and what the server app last said."""
    server = server_of(folder)
    said = read_json(server.folder / "record" / "status.json") or {}
    return programs.holder(server.lock), said


def stop(folder: Path) -> bool:
    """End a federation's `up`; return whether there was one."""
    server = server_of(folder)
    pid = programs.holder(server.lock)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not programs.wait_until(lambda: programs.holder(server.lock) is None, STOPPED):
        raise UserError(f"process {pid} has not ended within {STOPPED:.0f} s; look at it, or end it: kill -9 {pid}")
    return True


def admit(folder: Path, name: str) -> None:
    """Let a silo that was set aside in again, from the next round on."""
    federation = read_federation(folder)
    names = [member.name for member in federation.members]
    if name not in names:
        raise UserError(f"there is no silo {name!r} in {folder}; expected one of {', '.join(names)}")
    wish = folder / "admit" / name
    wish.parent.mkdir(parents=True, exist_ok=True)
    wish.touch()
