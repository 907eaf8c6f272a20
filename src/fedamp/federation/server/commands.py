"""What the operator does with a federation's server: up, status, stop, admit.

DIR/server/run/  see `place`
DIR/record/      what a running server writes: status.json, log.txt with a line per round, the run's record
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedamp.errors import UserError
from fedamp.federation.plan_files import read_federation
from fedamp.federation.processes import launch, locks, logs
from fedamp.federation.processes.waiting import wait_until
from fedamp.federation.server.place import Place, place_of
from fedamp.federation.server.silo_states import AWAY, PRESENT
from fedamp.files import read_json

STOPPED = 60.0  # seconds to wait for
TICK = 0.2
Say = Callable[[str], None]


def up(folder: Path, host: str | None, port: int | None, say: Say) -> None:
    """Run a federation to its end, or to Ctrl-C."""
    place = place_of(folder, host, port)
    with launch.ending_in_order(), locks.only_one(place.lock, f"the federation in {folder}"):
        sys.path.insert(0, str(place.server / "code"))  # of a federation's own model
        _run(place, say)
    say(f"finished; the record is in {place.record}; for a report, run: fedamp report {place.record}")


def _run(place: Place, say: Say) -> None:
    # Here and not above: they import Flower and torch, which `status` and `stop` do not need.
    from fedamp.federation.server.app import open_record, play
    from fedamp.federation.server.fleet import listening
    from fedamp.federation.server.grid import LinkGrid
    from fedamp.federation.server.lateness import Lateness
    from fedamp.federation.server.link import Link
    from fedamp.federation.wire.objects import most_bytes

    federation = read_federation(place.folder)
    record = open_record(federation, place.record)
    link = Link(most_bytes(record.state.reply_like))
    for member in federation.members:
        key = place.server / "keys" / f"{member.name}.pub"
        if member.removed:
            continue
        if key.exists():
            link.register(member.name, key.read_bytes())
        else:
            say(f"{member.name} is left out: server/keys/{key.name} does not exist")
    with (
        _passing_on(place.record / "log.txt", say),
        listening(link, place.host, place.port, place.server, place.log),
    ):
        say(f"the server is listening on {place.host}:{place.port}; waiting for silos")
        play(LinkGrid(link, Lateness(federation.rules)), record, link.unregister)


@contextmanager
def _passing_on(log: Path, say: Say) -> Iterator[None]:
    """Say what is added to a log, as long as the block lasts."""
    follower, over = logs.Follower(log), threading.Event()

    def follow() -> None:
        while not over.wait(TICK):
            for line in follower.lines():
                say(line)

    thread = threading.Thread(target=follow, name="log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for line in follower.lines():
            say(line)


def status(folder: Path) -> tuple[int | None, Mapping[str, Any]]:
    """Return the process of `up`, if there is one, and the status that the server app last wrote.

    Without that process no silo is connected, whatever was written; what a finished federation ended with stays true.
    """
    place = place_of(folder)
    written = read_json(place.record / "status.json") or {}
    pid = locks.holder(place.lock)
    if pid is None and (silos := written.get("silos")) and written.get("state") != "finished":
        written = {
            **written,
            "silos": [{**each, "state": AWAY} if each.get("state") in PRESENT else each for each in silos],
        }
    return pid, written


def stop(folder: Path) -> bool:
    """End a federation's `up`; return whether there was one."""
    place = place_of(folder)
    pid = locks.holder(place.lock)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not wait_until(lambda: locks.holder(place.lock) is None, STOPPED):
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
