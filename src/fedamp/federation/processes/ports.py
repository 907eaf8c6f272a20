"""TCP ports: whether one is free, and which one is."""

from __future__ import annotations

import errno
import socket

from fedamp.errors import UserError


def check_port(host: str, port: int) -> None:
    """Refuse a port that something else listens on."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        cure = "stop what uses it, or give another --port" if used else "give another --host or --port"
        raise UserError(f"can't listen on {host}:{port} ({error.strerror}); {cure}") from None


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
