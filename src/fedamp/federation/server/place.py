"""Where a federation's server keeps what it needs while it runs, and where it listens.

DIR/server/run/  up.lock, server.log (Flower and the web server)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedamp.errors import UserError
from fedamp.federation.plan_files import read_federation
from fedamp.federation.provision.address import LOOPBACK, read_address

HERE, EVERYWHERE = "127.0.0.1", "0.0.0.0"


@dataclass(frozen=True)
class Place:
    """A federation's folder, and the address that its server listens on."""

    folder: Path
    host: str
    port: int

    @property
    def server(self) -> Path:
        """The folder with certificate, keys and code."""
        return self.folder / "server"

    @property
    def record(self) -> Path:
        """The folder of the federation's record."""
        return self.folder / "record"

    @property
    def lock(self) -> Path:
        """Held as long as `up` runs."""
        return self.server / "run" / "up.lock"

    @property
    def log(self) -> Path:
        """What Flower and the web server say."""
        return self.server / "run" / "server.log"


def place_of(folder: Path, host: str | None = None, port: int | None = None) -> Place:
    """Return where the server of a federation's folder is.

    By default it listens where the silos knock: on the port that `init` was given, on all interfaces, or on the
    loopback interface alone if the federation was made for one machine. On the loopback interface of a federation
    for many machines, it listens on the next port, behind nginx.
    """
    folder = folder.absolute()
    read_federation(folder)
    address = read_address(folder)
    alone = not set(address.hosts) - LOOPBACK
    host = host or (HERE if alone else EVERYWHERE)
    if port is not None and not 0 < port < 1 << 16:
        raise UserError(f"port is {port}; expected a number from 1 to 65535")
    return Place(folder, host, port or (address.listen if host in LOOPBACK else address.port))
