"""The process in which a silo takes part: it asks the server for work, does it, and sends the reply.

    python -m fedamp.federation.silo.node BUNDLE

It speaks Flower's protocol over one outgoing connection, signed with the silo's key. Nothing listens on this machine,
so no other user of it can pose as the server or as the silo. It does only what `app` does: code that a server might
send along is not even fetched.
"""

from __future__ import annotations

import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from flwr.app import Context, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_object_tree, iterate_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    inflate_object_from_contents,
    pull_objects,
)
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_connection import http_request_response

from fedamp.federation.plan_files import read_silo_config
from fedamp.federation.silo.app import app
from fedamp.federation.wire.objects import pieces_of

NODE = "node.toml"  # in BUNDLE/run: where bundle and data are, and what the silo does
CONNECTED = "connected to the server"
SOON, SELDOM, SLOWER = 0.05, 1.0, 1.2
"""Seconds between two questions for work: soon after a reply, then more and more seldom."""
PIECE = 0.03
"""Seconds after which a piece of a message that is not there yet is asked for again; that doubles."""
PATIENCE = 600.0
"""Seconds that the pieces of a message may take."""


def main(bundle: Path) -> None:
    """Take part until the process is ended."""
    settings = tomllib.loads((bundle / "run" / NODE).read_text(encoding="utf-8"))
    private: Any = serialization.load_ssh_private_key((bundle / "key").read_bytes(), None)
    with http_request_response(
        read_silo_config(bundle).server,
        insecure=False,
        root_certificates=str(bundle / "ca.crt"),
        authentication_keys=(private, private.public_key()),
    ) as (node, receive, send, _, _, pull, push, confirm):
        print(CONNECTED, flush=True)
        TaskIdentity.node_id = node
        pause = SOON
        while True:
            received = receive()
            if received is None:
                time.sleep(pause)
                pause = min(SLOWER * pause, SELDOM)
                continue
            pause = SOON
            try:
                message = _fetch(*received, pull, confirm)
                TaskIdentity.run_id = message.metadata.run_id
                began = time.monotonic()
                reply = app(message, Context(message.metadata.run_id, node, settings, RecordDict(), {}))
                _send(reply, send, push, time.monotonic() - began)
            except (ObjectPullError, ObjectPushError, RunNotRunningException) as error:
                # This message is lost, or its reply comes too late; the next one will say what the server has.
                print(f"a message or its reply was lost: {error}", flush=True)


def _fetch(announced: Message, tree: ObjectTree, pull: Any, confirm: Any) -> Message:
    """Return a message that was announced, with its content."""
    run, name = announced.metadata.run_id, announced.metadata.message_id
    wanted = list({piece.object_id for piece in iterate_object_tree(tree)})
    pieces = pull_objects(wanted, lambda piece: pull(run, piece), initial_backoff=PIECE, max_time=PATIENCE)
    confirm(run, name)
    message: Any = inflate_object_from_contents(name, pieces)
    message.metadata.__dict__["_message_id"] = name
    return message  # type: ignore[no-any-return]


def _send(reply: Message, send: Any, push: Any, seconds: float) -> None:
    """Announce a reply, and send the pieces that the server does not have yet."""
    pieces = pieces_of(reply)
    with no_object_id_recompute():
        tree = get_object_tree(reply)
    missing, session = send(reply, tree, seconds)
    for name in missing:
        push(reply.metadata.run_id, session, name, pieces[name])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
