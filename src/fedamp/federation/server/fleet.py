"""The server's only door: the calls that a silo makes, of Flower's Fleet interface, over TLS.

Flower's own server has two more interfaces on the same port, and whoever reaches them can register keys and start
runs. Here they do not exist: not for the network, and not for other users of this machine. Every call must be signed
with a registered key.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.error import http_error_translator
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.supercore.routers import health
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fedamp.errors import UserError
from fedamp.federation.processes import rotation
from fedamp.federation.processes.ports import check_port
from fedamp.federation.processes.waiting import wait_until
from fedamp.federation.server.link import Link

CALLS = (
    *("activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "push-messages"),
    *("pull-object", "push-object", "confirm-message-received"),
)
"""What a silo calls. `register-node` is not among it: keys are registered by the operator alone."""
LET_THROUGH = {("GET", "/health"), *(("POST", f"/v1/fleet/{call}") for call in CALLS)}
MOST = 16 << 20
"""Bytes of one request. Flower cuts arrays into chunks of 5 MiB."""
OF_STRANGERS = 1 << 16
"""Bytes of a request that names no registered key: it is read before its signature is checked."""
MOST_CONNECTIONS = 400
"""At a time, and each must say something soon: a stranger must not use up the files that a process may open,
and which the record needs too. A silo has one or two."""
IDLE = 5  # seconds without a request
TO_START, TO_END = 30.0, 5.0  # seconds to wait for


def make_app(link: Link) -> FastAPI:
    """Return the server's web application."""
    middleware: list[Any] = [
        Middleware(OnlyCalls, link=link),
        Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
        Middleware(ProtobufTranslationMiddleware),
        Middleware(NodeAuthMiddleware),
    ]
    app = FastAPI(title="fedamp", docs_url=None, redoc_url=None, openapi_url=None, middleware=middleware)
    app.state.linkstate_factory = link.factory
    app.state.enable_supernode_auth = True
    app.include_router(health.router)
    app.include_router(fleet)
    return app


class OnlyCalls:
    """Lets through the calls that a silo makes and nothing else, and ends a request that is too large."""

    def __init__(self, app: ASGIApp, link: Link) -> None:
        self.app, self.link = app, link

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, piece by piece, as long as it is small enough."""
        if scope["type"] == "http" and (scope["method"], scope["path"]) not in LET_THROUGH:
            return await Response(status_code=404)(scope, receive, send)
        size, most = 0, MOST if self._is_known(Headers(scope=scope)) else OF_STRANGERS

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return message if size <= most else {"type": "http.disconnect"}

        await self.app(scope, counted if scope["type"] == "http" else receive, send)

    def _is_known(self, headers: Headers) -> bool:
        """Return whether a request names a registered key; that it is signed with it is checked later."""
        try:
            key = b64decode(headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER, ""), validate=True)
        except ValueError:
            return False
        return self.link.state.get_node_id_by_public_key(key) is not None


class FewConnections(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Hangs up on who connects when there is no room, or connects and says nothing."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, if there is room."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:  # in the place of uvicorn's own timer, which it stops when something comes, and starts after an answer
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, transport.abort)


@contextmanager
def listening(link: Link, host: str, port: int, server: Path, log: Path) -> Iterator[None]:
    """Answer silos' calls as long as the block lasts, in a thread; `server` holds certificate and key."""
    check_port(host, port)
    config = uvicorn.Config(
        make_app(link),
        host=host,
        port=port,
        ssl_certfile=server / "server.crt",
        ssl_keyfile=str(server / "server.key"),
        http=FewConnections,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=2,
    )
    with _logging_to(log):
        web = uvicorn.Server(config)
        thread = threading.Thread(target=web.run, name="fleet", daemon=True)
        thread.start()
        try:
            wait_until(lambda: web.started or not thread.is_alive(), TO_START, 0.05)
            if not web.started:
                raise UserError(f"the server could not listen on {host}:{port}; {log} says why")
            yield
        finally:
            web.should_exit = True
            thread.join(TO_END)


@contextmanager
def _logging_to(log: Path) -> Iterator[None]:
    """Let Flower and the web server write to a file of bounded size, not to the terminal."""
    log.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(log, maxBytes=rotation.LIMIT, backupCount=rotation.KEPT, encoding="utf-8")
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger(name) for name in ("flwr", "uvicorn")]
    before = [(logger, logger.handlers[:], logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers[:], logger.propagate = [handler], False
    try:
        yield
    finally:
        for logger, handlers, propagate in before:
            logger.handlers[:], logger.propagate = handlers, propagate
        handler.close()
