"""Flower's server program (SuperLink) of a federation: started, asked, and given the silos' keys.

DIR/server/run/  Flower's home and database, superlink.log
"""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedamp import checks
from fedamp.errors import UserError
from fedamp.federation.plan_files import read_federation
from fedamp.federation.processes import launch, logs, ports
from fedamp.federation.processes.waiting import wait_until
from fedamp.federation.provision.address import read_address

HEALTHY, ANSWER = 60.0, 60.0  # seconds to wait for
NAME = "fedamp"  # of the one server in Flower's configuration
HERE, EVERYWHERE = "127.0.0.1", "0.0.0.0"  # Flower's own parts reach the server at 127.0.0.1, so these two are enough
DATABASE, REGISTERED = "state.db", "registered.json"  # Flower's memory, and the keys that are in it


@dataclass(frozen=True)
class FlowerServer:
    """Flower's server of a federation, and the way to talk to it."""

    folder: Path
    host: str
    port: int

    @property
    def run(self) -> Path:
        """The folder of what is needed only while the server runs."""
        return self.folder / "server" / "run"

    @property
    def lock(self) -> Path:
        """Held as long as `up` runs."""
        return self.run / "up.lock"

    @property
    def env(self) -> dict[str, str]:
        """The environment of Flower's programs; the server app finds its federation in it."""
        code = self.folder / "server" / "code"
        return launch.environment(self.run / "flwr", code, FEDAMP_FEDERATION=str(self.folder))

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start it, wait until it answers, and end it with the block."""
        ports.check_port(self.host, self.port)
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
            *(launch.flower_program("flower-superlink"), "--host", self.host, "--port", str(self.port)),
            *("--ssl-ca-certfile", str(server / "ca.crt"), "--ssl-certfile", str(server / "server.crt")),
            *("--ssl-keyfile", str(server / "server.key"), "--enable-supernode-auth"),
            *("--database", str(self.run / DATABASE), "--disable-runtime-dependency-installation"),
        ]
        log = logs.begin_log(self.run / "superlink.log")
        with launch.running(command, self.env, log) as process:
            wait_until(lambda: self.healthy() or process.poll() is not None, HEALTHY)
            if not self.healthy():
                raise UserError(f"Flower's server did not start; the end of {log}: {logs.tail(log, 5)}")
            yield process

    def healthy(self) -> bool:
        """Return whether the server answers."""
        context = ssl.create_default_context(cafile=str(self.folder / "server" / "ca.crt"))
        # No proxy: the server is on this machine.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(f"https://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def ask(self, *arguments: str) -> dict[str, Any]:
        """Run one of Flower's commands, and return its answer."""
        command = [launch.flower_program("flwr"), *arguments, "--format", "json"]
        text = f"no answer within {ANSWER:.0f} s"
        try:
            done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=ANSWER, cwd=self.run)
            text = logs.COLOUR.sub("", done.stdout + done.stderr).strip()
            answer: dict[str, Any] = json.loads(done.stdout)
        except (ValueError, subprocess.TimeoutExpired):
            return {"success": False, "error-message": text}
        return answer

    def register(self, name: str) -> None:
        """Register a silo's key; one that is registered already is fine."""
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
        """Return a run's state, and Flower's details about it."""
        runs = self.ask("list", NAME, "--run-id", run).get("runs", [])
        return (runs[0]["status"], runs[0].get("status-details", "")) if runs else ("unknown", "")

    def begin(self) -> str:
        """Start a run of the federation's app, and return its number."""
        # Runs of a server that was killed: silos would still be asked to train for them, and nobody would listen.
        for run in self.unfinished():
            self.ask("stop", run, NAME)
        answer = self.ask("run", str(self.folder / "server" / "app"), NAME)
        if not answer.get("run-id"):
            raise UserError(f"the run could not be started: {answer.get('error-message', answer)}")
        return str(answer["run-id"])


def server_of(folder: Path, host: str = HERE, port: int | None = None) -> FlowerServer:
    """Return the server of a federation's folder."""
    folder = folder.absolute()
    read_federation(folder)
    address = read_address(folder)
    checks.one_of("host to listen on", host, [HERE, EVERYWHERE])
    if port is not None and not 0 < port < 1 << 16:
        raise UserError(f"port is {port}; expected a number from 1 to 65535")
    return FlowerServer(folder, host, port or (address.listen if host == HERE else address.port))
