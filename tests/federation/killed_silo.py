"""A federation whose private silo is killed, again and again, while it writes its files: a process of its own.

    python killed_silo.py FOLDER

After each death the whole federation is started again and goes on. Prints, after each, how many different replies
have left the silo so far, how many rounds its ledger holds, and how many of them were paid for twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

MOMENTS = (*range(1, 13), 15, 19, 24, 30, 37, 45, 54, 64)
"""Which of the steps in which the silo writes a file is its last: the first ones are a round's own."""


def live(folder: Path, moment: int, left: int) -> None:
    """Play until the silo is about to take a step on its disk; report each reply that leaves it."""
    from fedamp import files
    from federation.inprocess import Local, plan_of

    home, steps = str(folder / "house-0"), 0

    def deadly(act):
        def acting(path, *more):
            nonlocal steps
            if str(path).startswith(home):
                steps += 1
                if steps == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
            return act(path, *more)

        return acting

    def leaves(number, reply):
        if number == 0 and "arrays" in reply.content.array_records:
            os.write(left, hashlib.sha256(reply.content.array_records["arrays"]["w.params"].data).digest())
        return reply

    files._sync, os.replace = deadly(files._sync), deadly(os.replace)
    data = folder / "data"
    local = Local(folder, plan_of(data, rounds=1000, epochs=1), data, tamper=leaves)
    from dataclasses import replace

    local.houses[0] = replace(local.houses[0], private=True)
    local.serve()


def main(folder: Path) -> None:
    """Begin the ledger, then die at each moment."""
    from fedamp.federation.silo.privacy_account import Before
    from fedamp.federation.silo.privacy_ledger import PrivacyLedger
    from federation.inprocess import write_silos
    from federation.private import A_STEP, PROMISE

    write_silos(folder / "data", 2)
    ledger = PrivacyLedger(folder / "house-0")
    ledger.begin(PROMISE, Before(), A_STEP)
    gone: set[bytes] = set()
    for moment in MOMENTS:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            live(folder, moment, writing)
            os._exit(0)
        os.close(writing)
        while seen := os.read(reading, 32):  # a pipe takes and gives so few bytes whole
            gone.add(seen)
        os.close(reading)
        died = os.WTERMSIG(os.waitpid(child, 0)[1])
        account = ledger.account()
        rounds = [each.round for each in account.rounds]
        counts = {"left": len(gone), "rounds": len(rounds), "twice": len(rounds) - len(set(rounds))}
        print(json.dumps({"signal": died, **counts, "steps": account.spending.total()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
