"""Where a federation's server is: the names and the port that silos connect to."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedamp import checks
from fedamp.errors import UserError
from fedamp.files import read_json

ADDRESS = "address.json"
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Address:
    """Where the server is."""

    hosts: tuple[str, ...]  # the first is the one that silos connect to
    port: int  # that they connect to
    listen: int  # port of Flower's server on the loopback interface; a different one if nginx is in front of it

    @classmethod
    def of(cls, hosts: Sequence[str], port: int) -> Address:
        """Return the address for silos that know the server by these names."""
        for host in hosts:
            _check_host(host)
        checks.count("port", port)
        if port > 65534:
            raise UserError(f"port is {port}; expected a whole number up to 65534")
        alone = not set(hosts) - LOOPBACK
        return cls(tuple(hosts), port, port if alone else port + 1)

    @property
    def server(self) -> str:
        """The address as a silo writes it."""
        host = self.hosts[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def read_address(folder: Path) -> Address:
    """Return the server's address from a federation's folder."""
    value = read_json(folder / "server" / ADDRESS)
    try:
        return Address(tuple(value["hosts"]), int(value["port"]), int(value["listen"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{folder / 'server' / ADDRESS} is missing or damaged; restore it from a backup") from None


def _check_host(host: str) -> None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
            raise UserError(f"host is {host!r}; expected a name like fl.example.org, or an IP address") from None
