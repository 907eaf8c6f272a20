"""Certificates that end: warned of from 60 days before, with the date and what to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedamp.errors import UserError
from fedamp.federation import certificates

NOTICE = timedelta(days=60)
OF_SERVER, OF_AUTHORITY = "the server's certificate", "the authority's certificate"


def ending(what: str, end: datetime, cure: str) -> str:
    """Return in a line that a certificate ends soon, or has ended; "" if that is far off."""
    left = end - datetime.now(UTC)
    if left > NOTICE:
        return ""
    when = f"ended on {end:%Y-%m-%d}" if left <= timedelta(0) else f"ends on {end:%Y-%m-%d}, in {_days(left)}"
    return f"{what} {when}; {cure}"


def at_server(folder: Path) -> list[str]:
    """Return a line for each certificate of a federation's server that ends soon, or has ended."""
    cures = {
        OF_SERVER: ("server.crt", f"renew it: fedamp federation renew {folder} --ca-key PATH-TO-ca.key"),
        OF_AUTHORITY: ("ca.crt", "make a new federation before that: the silos know the server by this certificate"),
    }
    lines = []
    for what, (name, cure) in cures.items():
        path = folder / "server" / name
        if path.exists() and (line := ending(what, certificates.validity(path.read_bytes())[1], cure)):
            lines.append(line)
    return lines


def check_server(folder: Path) -> list[str]:
    """Return the same; a certificate that has ended is an error: no silo would connect."""
    lines = at_server(folder)
    for line in lines:
        if " ended on " in line:
            raise UserError(line)
    return lines


def _days(left: timedelta) -> str:
    return "less than a day" if left.days < 1 else "1 day" if left.days == 1 else f"{left.days} days"
