"""Processes that play runs together, as torchrun would start them, on the loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")
PATIENCE = 240


def environment(rank: int, size: int, port: int, **more: str) -> dict[str, str]:
    """Return what torchrun tells a process."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    paths = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    words = {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "FEDAMP_RANK_TIMEOUT": "120"}
    if sys.platform == "linux":
        words["GLOO_SOCKET_IFNAME"] = "lo"
    return {**os.environ, **{name: str(value) for name, value in told.items()}, **words, **more}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(size: int, arguments: Sequence[str], cwd: Path, each: Sequence[Sequence[str]] = ()) -> list[subprocess.Popen]:
    """Start processes with the same arguments, or with `each` its own."""
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, *(each[rank] if each else arguments)],
            cwd=cwd,
            env=environment(rank, size, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for rank in range(size)
    ]


def ended(processes: Sequence[subprocess.Popen], timeout: float = PATIENCE) -> list[tuple[int, str, str]]:
    """Wait for all to end; return the exit code, stdout and stderr of each."""
    found = []
    try:
        for one in processes:
            out, err = one.communicate(timeout=timeout)
            found.append((one.returncode, out, err))
    finally:
        for one in processes:
            if one.poll() is None:
                one.kill()
                one.communicate()
    return found


def play(size: int, jobs: Sequence[dict[str, Any]], folder: Path) -> list[tuple[int, str, str]]:
    """Let so many processes play these jobs together, each in its own folder (see `worker`)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"jobs{size}.json").write_text(json.dumps(list(jobs)))
    done = ended(start(size, [str(WORKER), f"jobs{size}.json"], folder))
    assert [code for code, _, _ in done] == [0] * size, "\n".join(err for _, _, err in done)
    return done


def command(size: int, arguments: Sequence[str], cwd: Path) -> list[tuple[int, str, str]]:
    """Give so many processes the same command; return exit code, stdout and stderr of each."""
    return ended(start(size, ["-m", "fedamp", *arguments], cwd))
