"""A silo connects to its federation, and stays connected.

BUNDLE/run/  up.lock, node.toml (where bundle and data are), node.log, and what the silo's app writes: log.txt, memory,
             models
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedamp.federation.plan import SiloConfig
from fedamp.federation.processes import launch, locks, logs
from fedamp.federation.processes.waiting import wait_until
from fedamp.federation.silo import diary, protection
from fedamp.federation.silo.privacy_wishes import NO_WISHES, Wishes

PAUSE, LONGEST = 1.0, 60.0  # seconds between two tries
TICK, PATIENCE = 0.5, 20.0
CONNECTED = "connected to the server"  # what `node` says as soon as it is
ACTIVATION, TURNED_AWAY = "Failed to activate SuperNode", "401 Unauthorized"  # in Flower's
UNVERIFIED = re.compile(r"CERTIFICATE_VERIFY_FAILED.*?verify failed: ([^(]*[^( ])")  # in Python's ssl
NODE, LOG = "node.toml", "node.log"  # what `node` is told, and its output
Say = Callable[[str], None]


def command_of(
    bundle: Path, data: Path, alone: bool = False, max_rounds: int | None = None, private: bool = False
) -> list[str]:
    """Return the command that connects a silo; write down for its app where bundle and data are, and what it does."""
    node = bundle / "run" / NODE
    node.parent.mkdir(mode=0o700, exist_ok=True)
    # A file, not the command line: paths may hold quotes and spaces, and other users could list them.
    texts = (json.dumps(str(path), ensure_ascii=False) for path in (bundle, data))
    beside = "alone = true\n" if alone else ""
    beside += f"max-rounds = {max_rounds}\n" if max_rounds is not None else ""
    beside += "private = true\n" if private else ""
    node.write_text("bundle = {}\ndata = {}\n".format(*texts) + beside, encoding="utf-8")
    return [sys.executable, "-m", "fedamp.federation.silo.node", str(bundle)]


def up(
    silo_config: SiloConfig,
    bundle: Path,
    data: Path,
    say: Say,
    alone: bool = False,
    max_rounds: int | None = None,
    wishes: Wishes = NO_WISHES,
) -> None:
    """Take part until Ctrl-C; whenever the process that does so ends, it is started again.

    What the operator wishes about privacy is settled once, here: later starts only keep what the ledger says.
    """
    bundle, data = bundle.absolute(), data.absolute()
    run = bundle / "run"
    run.mkdir(mode=0o700, exist_ok=True)
    with launch.ending_in_order(), locks.only_one(run / "up.lock", f"silo {silo_config.name} of {bundle}"):
        private = protection.settle(silo_config, run, data, wishes, say)
        follower = logs.Follower(run / "log.txt")
        log = logs.begin_log(run / LOG)
        env = launch.environment(run / "flwr", bundle / "code")
        say(f"silo {silo_config.name} connects to {silo_config.server}; press Ctrl-C to leave")
        diary.note_connection(run, "connecting")
        pause = PAUSE
        while True:
            flower = logs.Follower(log)
            with launch.running(command_of(bundle, data, alone, max_rounds, private), env, log) as process:
                seen, connected = _follow(process, flower, follower, say, run)
            pause = PAUSE if connected else pause
            say(f"the connection ended ({_reason(seen) or f'see {log}'}); trying again in {pause:.0f} s")
            diary.note_connection(run, "trying again", _reason(seen))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)


def _follow(
    process: subprocess.Popen[bytes], flower: logs.Follower, app: logs.Follower, say: Say, run: Path
) -> tuple[list[str], bool]:
    """Pass on the silo's lines until its process ends; return its last ones, and whether it was connected."""
    seen: list[str] = []
    connected, patience, ended = False, time.monotonic() + PATIENCE, False
    while not ended:
        ended = wait_until(lambda: process.poll() is not None, TICK)
        new = flower.lines()
        seen = [*seen, *new][-40:]
        if not connected and any(CONNECTED in line for line in new):
            connected = True
            say("connected; waiting for work")
            diary.note_connection(run, "connected")
        if not connected and time.monotonic() > patience:
            patience = math.inf
            say("no answer from the server yet; still trying")
            diary.note_connection(run, "no answer yet")
        for line in app.lines():
            say(line)
    return seen, connected


def _reason(lines: list[str]) -> str:
    """Return in a few words why the silo's process ended, from its last lines; "" if they don't say."""
    errors = [line.strip() for line in lines if line.strip().startswith(("[code:", "Failed to", "[Errno", "[SSL"))]
    if errors and ACTIVATION in errors[-1]:
        return (
            "the server does not know this silo's key, or has not yet noticed that its last connection ended; if that "
            "does not pass within a minute: another process may be using this key, or the silo was removed (ask the "
            "operator)"
        )
    if any(TURNED_AWAY in line for line in lines[-10:]):
        return "the server was started anew, or it turned the silo away: is this machine's clock right?"
    if errors and (verified := UNVERIFIED.search(errors[-1])):
        if "expired" in verified[1]:
            return "the server's certificate has ended, or this machine's clock is wrong; tell the server's operator"
        return (
            f"what answers is not the server of this bundle: {verified[1]}; nothing was sent to it. Look whether the "
            "address is right, or ask the operator for a new bundle; fedamp silo check tells when it is in order"
        )
    return errors[-1] if errors else ""
