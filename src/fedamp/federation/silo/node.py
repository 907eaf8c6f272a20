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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives import serialization
from flwr.app import Context, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    inflate_object_from_contents,
    pull_objects,
)
from flwr.supercore.run import RunNotRunningException
from flwr.supernode.fleet_http_connection import http_request_response

from fedamp.federation.plan_files import read_silo_config
from fedamp.federation.processes import launch
from fedamp.federation.silo.app import app
from fedamp.federation.silo.connect import CONNECTED, NODE
from fedamp.federation.wire.objects import in_pieces

SOON, SELDOM, SLOWER = 0.05, 1.0, 1.2
"""Seconds between two questions for work: soon after a reply, then more and more seldom."""
PIECE, PATIENCE = 0.03, 600.0
"""Seconds after which a missing piece of a message is asked for again, which doubles; and that all may take."""


@dataclass(frozen=True)
class Line:
    """A connection to the server, in Flower's words."""

    node: int
    receive: Callable[[], tuple[Message, ObjectTree] | None]
    send: Callable[[Message, ObjectTree, float], tuple[set[str], str]]
    pull: Callable[[int, str], bytes]
    push: Callable[[int, str, str, bytes], None]
    confirm: Callable[[int, str], None]

    def fetch(self) -> Message | None:
        """Return the next message with its content, if there is one."""
        received = self.receive()
        if received is None:
            return None
        announced, tree = received
        run, name = announced.metadata.run_id, announced.metadata.message_id
        wanted = list({piece.object_id for piece in iterate_object_tree(tree)})
        pieces = pull_objects(wanted, lambda piece: self.pull(run, piece), initial_backoff=PIECE, max_time=PATIENCE)
        self.confirm(run, name)
        message = cast(Message, inflate_object_from_contents(name, pieces))
        message.metadata.__dict__["_message_id"] = name
        return message

    def answer(self, reply: Message, seconds: float) -> None:
        """Announce a reply, and send the pieces that the server does not have yet; `seconds`: how long it took."""
        pieces, tree = in_pieces(reply)
        missing, session = self.send(reply, tree, seconds)
        for name in missing:
            self.push(reply.metadata.run_id, session, name, pieces[name])


@contextmanager
def connected(bundle: Path) -> Iterator[Line]:
    """Connect to the server of a bundle; the server is told when the block ends."""
    private: Any = serialization.load_ssh_private_key((bundle / "key").read_bytes(), None)
    failure: Exception | None = None
    with http_request_response(
        read_silo_config(bundle).server,
        insecure=False,
        root_certificates=(bundle / "ca.crt").read_bytes(),
        authentication_keys=(private, private.public_key()),
    ) as (node, receive, send, _, _, pull, push, confirm):
        try:
            yield Line(node, receive, send, pull, push, confirm)
        except Exception as error:  # Flower would keep it to itself
            failure = error
    if failure is not None:
        raise failure


def take_part(line: Line, act: Callable[[Message], Message]) -> None:
    """Do what the server asks for, one message after the other, for as long as the connection holds."""
    pause = SOON
    while True:
        try:
            message = line.fetch()
            if message is None:
                time.sleep(pause)
                pause = min(SLOWER * pause, SELDOM)
                continue
            pause, began = SOON, time.monotonic()
            line.answer(act(message), time.monotonic() - began)
        except (ObjectPullError, ObjectPushError, RunNotRunningException) as error:
            # This message is lost, or its reply comes too late: the next one will say what the server has.
            print(f"a message or its reply was lost: {error}", flush=True)


def main(bundle: Path) -> None:
    """Take part until the process is ended."""
    settings = tomllib.loads((bundle / "run" / NODE).read_text(encoding="utf-8"))
    with launch.ending_in_order(), connected(bundle) as line:  # so that the server is told when this process is ended
        print(CONNECTED, flush=True)
        take_part(
            line, lambda message: app(message, Context(message.metadata.run_id, line.node, settings, RecordDict(), {}))
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
