"""Other programs: finding, starting and ending them, with nothing left behind; locks, ports, logs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from fedamp.errors import UserError

REAPER = Path(__file__).with_name("reaper.py")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
GRACE = 10.0  # seconds that a program has to end by itself


def program(name: str) -> str:
    """Return where one of Flower's programs lies: beside this Python."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise UserError(f"there is no {name} beside {sys.executable}; install it: pip install 'fedamp[federation]'")
    return str(path)


def environment(home: Path, code: Path, **more: str) -> dict[str, str]:
    """Return the environment for Flower's programs: a home of their own, nothing sent out, nothing installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    paths = [str(code), *filter(None, [kept.get("PYTHONPATH")])]
    return {
        **kept,
        # Flower's programs start one another by name.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        # Parts of Flower on one machine talk over loopback, which no proxy reaches.
        "NO_PROXY": ",".join(filter(None, [kept.get("NO_PROXY", kept.get("no_proxy")), "127.0.0.1", "localhost"])),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
        **more,
    }


@contextlib.contextmanager
def kept(
    command: Sequence[str], env: Mapping[str, str], log: Path, grace: float = GRACE
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside this process, its output in a file; when the block ends, so does all that it started."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(REAPER), str(grace), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,  # a Ctrl-C at the terminal is for us alone: we end it in order
        )
    try:
        yield process
    finally:
        end(process, grace)


def end(process: subprocess.Popen[bytes], grace: float = GRACE) -> None:
    """End what `kept` started, in bounded time."""
    process.terminate()
    try:
        process.wait(grace + 10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def only_one(lock: Path, what: str) -> Iterator[None]:
    """Hold a lock with our process id in it; another holder is an error. The lock goes with the process."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        # More than one try: a `status` that looks at the lock holds it for a moment.
        if not wait_until(lambda: _locked(file, fcntl.LOCK_EX), 0.5, 0.1):
            file.seek(0)
            raise UserError(f"{what} is running already, as process {file.read().strip() or '?'}; stop it first")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def holder(lock: Path) -> int | None:
    """Return the process that holds a lock, or None."""
    try:
        with lock.open() as file:
            if _locked(file, fcntl.LOCK_SH):
                return None
            text = file.read().strip()
            return int(text) if text.isdigit() else None
    except FileNotFoundError:
        return None


def _locked(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does, so that what was started is ended too."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the way out is not to be interrupted
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_port(host: str, port: int) -> None:
    """Refuse a port that something else listens on."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UserError(
            f"can't listen on {host}:{port} ({error.strerror}); stop what uses it, or give another --port"
        ) from None


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(true: Callable[[], bool], seconds: float, tick: float = 0.2) -> bool:
    """Wait for something to become true; return whether it did."""
    end_at = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end_at:
        time.sleep(tick)
    return found


def tail(path: Path, lines: int = 20) -> str:
    """Return a file's last lines; "" where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 20_000))
            text = COLOUR.sub("", file.read().decode(errors="replace"))
            return "\n".join(text.splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def begin_log(path: Path) -> Path:
    """Begin a log anew; the one before stays as NAME.before."""
    if path.exists():
        path.replace(path.with_name(f"{path.name}.before"))
    return path


class Follower:
    """Hands on the lines that others append to a file from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = path.stat().st_size if path.exists() else 0
        self.rest = b""

    def lines(self) -> list[str]:
        """Return the whole lines that have come since the last call."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self.place:  # begun anew
                    self.place, self.rest = 0, b""
                file.seek(self.place)
                new = file.read()
                self.place = file.tell()
        except FileNotFoundError:
            return []
        *whole, self.rest = (self.rest + new).split(b"\n")
        return [line.decode(errors="replace") for line in whole]
