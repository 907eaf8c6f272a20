"""The server's folder: the start script, the systemd unit, nginx's configuration, the operator's page."""

from __future__ import annotations

from pathlib import Path
from string import Template

from fedamp import __version__
from fedamp.federation.plan import Plan
from fedamp.federation.provision.address import Address
from fedamp.federation.provision.writing import SCRIPT, fill

DOOR = (
    "Open TCP port $port, from the silos' addresses only, and nothing else. Silos reach the server at $server; they "
    "open nothing themselves. The server answers only the calls that a silo makes, each signed with a registered key."
    "\n\nIf every service of your house must be behind nginx: `server/nginx.conf` is for that. Then start the server "
    "with `--host 127.0.0.1`, where it listens on port $listen."
)
NO_DOOR = (
    "Nothing: this federation was made for one machine, whose silos reach the server on the loopback interface at "
    "$server. To let other machines in, make a federation with `--host NAME`."
)


def write_server(made: Path, folder: Path, plan: Plan, address: Address) -> None:
    """Write what the server needs apart from keys to `made`, which becomes `folder`."""
    server = made / "server"
    values = {
        "name": plan.name,
        "folder": str(folder),
        "version": __version__,
        "server": address.server,
        "hosts": " ".join(address.hosts),
        "port": str(address.port),
        "listen": str(address.listen),
    }
    values["door"] = Template(NO_DOOR if address.port == address.listen else DOOR).substitute(values)
    fill("nginx.conf", server / "nginx.conf", values)
    fill("start-server.sh", server / "start.sh", values, SCRIPT)
    fill("fedamp-federation.service", server / "fedamp-federation.service", values)
    fill("federation.md", made / "README.md", values)
