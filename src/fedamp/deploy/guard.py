"""The silo's own app, whatever app the server sends.

Flower's client process runs the code that comes with a run, so that whoever holds the server could run anything in the
silo. This program stands in for it: it does as Flower's does, but what came is never unpacked, and the app is the one
of the installed package. The other kinds of apps that Flower knows are not run at all.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

OURS = "flwr-clientapp"
OTHERS = ("flwr-serverapp", "flwr-simulation", "flwr-agentapp", "flwr-model", "flwr-connector")


def write_programs(folder: Path) -> None:
    """Write the programs that are to be found before Flower's own."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ours = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fedamp.deploy.guard "$@"\n'
    for name, text in [(OURS, ours), *((name, "#!/bin/sh\nexit 1\n") for name in OTHERS)]:
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)


def main() -> None:
    """Run Flower's client process with our app."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as flower

    from fedamp.deploy.client import app

    for name, ours in {
        "install_from_fab": lambda *_, **__: None,
        "get_load_client_app_fn": lambda *_, **__: lambda *_: app,
    }.items():
        if not hasattr(flower, name):  # better no round than one with foreign code
            raise SystemExit(f"this version of Flower has no {name}; install the one that fedamp[deploy] asks for")
        setattr(flower, name, ours)
    flwr_clientapp()


if __name__ == "__main__":
    main()
