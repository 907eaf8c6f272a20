"""The silo's own app, whatever app the server sends.

Flower's client process runs the code that comes with a run, so whoever controls the server could run anything in the
silo. This program takes its place: it does what Flower's does, but the code that was sent is never unpacked, and the
app is that of the installed package. The other kinds of apps that Flower knows are not run at all.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from fedamp.errors import UserError

OURS = "flwr-clientapp"
OTHERS = ("flwr-serverapp", "flwr-simulation", "flwr-agentapp", "flwr-model", "flwr-connector")
STARTER = "flower-superexec"  # which starts the apps' programs, by their names
ARE_YOU_OURS, YES = "--fedamp-guard", "fedamp"


def write_programs(folder: Path) -> None:
    """Write the programs that are to be found instead of Flower's own."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    python = shlex.quote(sys.executable)
    texts = dict.fromkeys(OTHERS, "exit 1")
    texts[OURS] = f'[ "$1" = {ARE_YOU_OURS} ] && echo {YES} && exit\nexec {python} -m fedamp.federation.silo.guard "$@"'
    texts[STARTER] = f'exec {shlex.quote(str(Path(sys.executable).with_name(STARTER)))} "$@"'
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o700)


def guarded_path(folder: Path, path: str) -> str:
    """Return a PATH on which only these programs have these names; prove that ours is found and runs.

    Folders that hold Flower's own are left out: should ours ever be missing, then nothing is run at all.
    """
    if os.pathsep in str(folder):
        raise UserError(f"{folder} has {os.pathsep!r} in its path, so programs in it can't be found; move the bundle")
    names = [OURS, STARTER, *OTHERS]
    others = [part for part in path.split(os.pathsep) if part and not any((Path(part) / n).exists() for n in names)]
    guarded = os.pathsep.join([str(folder), *others])
    try:
        answer = subprocess.run(
            [OURS, ARE_YOU_OURS], env={**os.environ, "PATH": guarded}, capture_output=True, text=True, timeout=30
        ).stdout.strip()
    except OSError as error:
        answer = error.strerror or str(error)
    if answer != YES:
        raise UserError(
            f"{folder / OURS} can't be run ({answer or 'no output'}), so the app that the server sends would run "
            "instead; move the bundle to a file system that allows running programs (not mounted noexec)"
        )
    return guarded


def main() -> None:
    """Run Flower's client process with our app."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as flower

    from fedamp.federation.silo.app import app

    for name, ours in {
        "install_from_fab": lambda *_, **__: None,
        "get_load_client_app_fn": lambda *_, **__: lambda *_: app,
    }.items():
        if not hasattr(flower, name):  # better no round than one with foreign code
            raise SystemExit(f"this version of Flower has no {name}; install the one that fedamp[federation] requires")
        setattr(flower, name, ours)
    flwr_clientapp()


if __name__ == "__main__":
    main()
