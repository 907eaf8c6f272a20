"""Starting programs and ending them, with nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

REAPER = Path(__file__).with_name("reaper.py")
GRACE = 10.0  # seconds that a program has to end by itself


def environment(home: Path, code: Path, **more: str) -> dict[str, str]:
    """Return the environment for a process that uses Flower: a home folder of its own, and nothing is sent out."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    paths = [str(code), *filter(None, [inherited.get("PYTHONPATH")])]
    no_proxy = inherited.get("NO_PROXY", inherited.get("no_proxy"))
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        # A server on the same machine is reached over loopback, which no proxy reaches.
        "NO_PROXY": ",".join(filter(None, [no_proxy, "127.0.0.1", "localhost"])),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        **more,
    }


@contextlib.contextmanager
def running(
    command: Sequence[str], env: Mapping[str, str], log: Path, grace: float = GRACE
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command alongside this process, its output in a file; when the block ends, so does all that it started."""
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
    """End what `running` started, in bounded time."""
    process.terminate()
    try:
        process.wait(grace + 10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
