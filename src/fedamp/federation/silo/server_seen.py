"""The federation's server as a silo sees it: whether it is the right one, its clock, and when its certificate ends."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fedamp.errors import UserError
from fedamp.federation import certificates, expiry

WAIT = 10.0  # seconds for the server to answer
ENDED = 10  # OpenSSL's number for a certificate that has ended
RENEW = "tell the operator, who renews it: fedamp federation renew"
NEW_FEDERATION = "ask the operator for a new bundle: a new federation is needed by then"


class EndedError(UserError):
    """The server's certificate has ended."""


@dataclass(frozen=True)
class Seen:
    """What a server showed: its clock, in HTTP's words, and when its certificate ends."""

    date: str | None
    end: datetime


def look_at(server: str, authority: Path) -> Seen:
    """Connect to a server, host:port, and return what it shows; raise unless it is the federation's."""
    host, _, port = server.rpartition(":")
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=WAIT, context=context)
    try:
        connection.connect()
        shown = ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(binary_form=True) or b"")
        connection.request("GET", "/health")
        return Seen(connection.getresponse().getheader("Date"), certificates.validity(shown.encode())[1])
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == ENDED:
            raise EndedError(f"the certificate of {server} has ended; {RENEW}") from None
        raise UserError(f"{server} is not the federation's server: {error.verify_message}") from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UserError(
            f"{server} can't be reached ({why}); is the server up, and its port open? (--offline skips this check)"
        ) from None
    finally:
        connection.close()


def server_ending(seen: Seen) -> str:
    """Return in a line that the server's certificate ends soon; "" if that is far off."""
    return expiry.ending(expiry.OF_SERVER, seen.end, RENEW)


def authority_ending(authority: Path) -> str:
    """Return in a line that the authority's certificate ends soon, or has ended; "" if that is far off."""
    return expiry.ending(expiry.OF_AUTHORITY, certificates.validity(authority.read_bytes())[1], NEW_FEDERATION)


def endings(server: str, authority: Path) -> list[str]:
    """Return a line for each certificate that ends soon, or has ended; a server that is away is no matter here."""
    lines = [authority_ending(authority)]
    try:
        lines.append(server_ending(look_at(server, authority)))
    except EndedError as error:
        lines.append(str(error))
    except UserError:
        pass
    return [line for line in lines if line]
