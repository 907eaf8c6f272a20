"""Serving a page to one person: HTTP on loopback, behind a secret in its address.

Every user of a machine can connect to 127.0.0.1, and every website can make a browser do so. Hence the secret, the
check of the headers Host (against DNS rebinding) and Origin, and GET alone. What is not asked for correctly gets 404
and nothing else, so that nobody learns what there is.
"""

from __future__ import annotations

import hmac
import secrets
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import Any

from fedamp.errors import UserError

HERE = "127.0.0.1"
METRICS = "metrics"
SLOWEST = 10.0
"""Seconds that somebody may take to ask."""
MOST = 32
"""Questions that are answered at the same time."""

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address holds the secret
    # Scripts from here alone, and none in the page; Plotly writes style attributes, and draws heat maps as images.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True)
class Resource:
    """Something to be asked for: what kind of content it is, and how to get it."""

    kind: str
    body: Callable[[], bytes]


class Watcher(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves resources by name at http://127.0.0.1:PORT/SECRET/NAME; the page itself has the name "".

    With a `token`, /metrics is there too, for whoever sends the header `Authorization: Bearer TOKEN`.
    """

    allow_reuse_address = True
    request_queue_size = 4 * MOST
    daemon_threads = True

    def __init__(self, resources: Mapping[str, Resource], port: int = 0, token: str | None = None) -> None:
        self.resources, self.token, self.secret = resources, token, secrets.token_urlsafe(32)
        self.places = threading.BoundedSemaphore(MOST)
        if not 0 <= port < 1 << 16:
            raise UserError(f"port is {port}; expected a number from 1 to 65535")
        try:
            super().__init__((HERE, port), Handler)
        except OSError as error:
            raise UserError(f"can't listen on {HERE}:{port} ({error.strerror}); give another --port") from None
        self.port: int = self.socket.getsockname()[1]

    @property
    def address(self) -> str:
        """Where the page is: whoever has the address may read it."""
        return f"http://{HERE}:{self.port}/{self.secret}/"

    def found(self, path: str, headers: Message) -> Resource | None:
        """Return what a request asks for; None if there is no such thing, or not for this asker."""
        if not self._from_here(headers):
            return None
        secret, slash, name = path.partition("?")[0].removeprefix("/").partition("/")
        if slash and _same(secret, self.secret):
            return self.resources.get(name)
        if (secret, slash) == (METRICS, "") and self.token is not None:
            kind, _, given = headers.get("Authorization", "").partition(" ")
            return self.resources.get(METRICS) if kind == "Bearer" and _same(given, self.token) else None
        return None

    def _from_here(self, headers: Message) -> bool:
        """Return whether a request is for this address by name, and from no page but ours."""
        hosts = [f"{name}:{self.port}" for name in (HERE, "localhost")]
        given = headers.get_all("Host") or []
        if len(given) != 1 or given[0] not in hosts:
            return False
        if headers.get("Origin", f"http://{given[0]}") != f"http://{given[0]}":
            return False
        # Browsers say so if another site's page asks; a person who follows a link may.
        from_elsewhere = headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        return not from_elsewhere or headers.get("Sec-Fetch-Mode") == "navigate"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless too many are asking: whoever connects must not fill this process."""
        if self.places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then make room for the next one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be quiet about askers that leave or dawdle; an error of ours keeps its traceback."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _same(given: str, expected: str) -> bool:
    """Compare in a time that does not depend on where the two differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = SLOWEST
    server: Watcher

    def do_GET(self) -> None:
        """Answer with a resource, or with nothing."""
        resource = self.server.found(self.path, self.headers)
        if resource is None:
            return self._answer(404)
        try:
            body = resource.body()
        except Exception:
            self._answer(500)
            raise
        return self._answer(200, resource.kind, body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is not a GET, or no HTTP at all, with nothing."""
        self._answer(405 if code == 501 else code)

    def _answer(self, code: int, kind: str | None = None, body: bytes = b"") -> None:
        self.close_connection = True
        self.send_response_only(code)
        # The page tells how long ago things were by this clock, which may not be the browser's.
        headers = {
            **HEADERS,
            "Date": self.date_time_string(),
            "Content-Length": str(len(body)),
            **({"Content-Type": kind} if kind else {}),
        }
        for name, value in {**headers, **({"Allow": "GET"} if code == 405 else {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the address holds the secret."""
