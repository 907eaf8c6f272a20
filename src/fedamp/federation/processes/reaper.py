"""A separate program that runs a command and leaves none of its processes behind; it imports nothing from fedamp.

    python reaper.py GRACE COMMAND...

It ends when the command ends, when it gets SIGTERM, or when the process that started it is gone, even by kill -9. Then
the command gets SIGTERM and GRACE seconds, and whatever is left of its descendants is killed. Flower starts processes
in new sessions, so killing a process group is not enough.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TICK, ALONE = 0.1, 2.0


def main(grace: float, command: list[str]) -> int:
    """Run a command to its end, or to ours; return its exit code."""
    parent = os.getppid()
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Orphans become our children: so they can be found, and none stays as a zombie, which others take for alive.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # If even this process is killed outright, so is the command.
    child = subprocess.Popen(command, preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    status: int | None = None
    while status is None and not stopped and os.getppid() == parent:
        time.sleep(TICK)
        status = _reap(child.pid)
    if status is None:
        _signal(child.pid, signal.SIGTERM)
        # If the process that started us is gone, the next one may already be waiting for the port.
        end = time.monotonic() + (grace if stopped else min(grace, ALONE))
        while status is None and time.monotonic() < end:
            time.sleep(TICK)
            status = _reap(child.pid)
    while left := _descendants():
        for pid in left:
            _signal(pid, signal.SIGKILL)
        time.sleep(TICK / 5)
        ended = _reap(child.pid)
        status = ended if status is None else status
    code = os.waitstatus_to_exitcode(status or 0)
    return code if code >= 0 else 128 - code


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _reap(child: int) -> int | None:
    """Collect all children that have ended; return the command's status if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        os.kill(pid, number)


def _descendants() -> list[int]:
    """Return all processes that descend from this one, zombies left out."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = list(children.get(os.getpid(), []))
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def _processes() -> list[tuple[int, int]]:
    """Return (pid, parent) of every living process."""
    if not os.path.isdir("/proc/self"):
        listing = subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE, text=True)
        lines = [line.split() for line in listing.communicate()[0].splitlines()]
        return [(int(pid), int(parent)) for pid, parent, stat in lines if int(pid) != listing.pid and stat[0] != "Z"]
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                # pid (name) state parent ...; the name may hold anything, so the last bracket ends it.
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            found.append((int(name), int(parent)))
    return found


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
