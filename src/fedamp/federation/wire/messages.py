"""Flower's messages as both strategies read them: who sent a reply, whether its silo takes part, and its metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Message
from flwr.common.constant import ErrorCode

from fedamp.federation.wire.encoding import RefusedError, one_line

VERSION = re.compile(r"[0-9A-Za-z.+-]{1,40}")
UNREADABLE = 9000
"""Flower's error code, here: the reply came, but is not what a reply may be."""


def by_sender(replies: Iterable[Message], sent: Mapping[str, Message]) -> Iterable[tuple[str, Message]]:
    """Yield who replied, and what: the first reply of each silo to its own message, and nothing else."""
    asked = {message.metadata.message_id: who for who, message in sent.items()}
    for reply in replies:
        to = reply.metadata.reply_to_message_id
        who = asked.get(to)
        if who is None:
            continue
        if not reply.has_error() and reply.metadata.src_node_id != sent[who].metadata.dst_node_id:
            continue  # a node answers for another
        del asked[to]
        yield who, reply


def check_willing(reply: Message) -> None:
    """Raise if a reply is an error, or says that its silo can't take part."""
    if reply.has_error() and reply.error.code == UNREADABLE:
        return  # it is bad, not unwilling
    if reply.has_error() and reply.error.code == ErrorCode.NODE_UNAVAILABLE:
        raise RefusedError("its connection was lost")
    if reply.has_error():
        raise RefusedError(f"no usable reply ({one_line(reply.error.reason)})")
    if "refusal" in reply.content.config_records:
        raise RefusedError(one_line(reply.content.config_records["refusal"].get("reason", "it gave no reason")))


def newest_of(reply: Message) -> int | None:
    """Return the number of the newest message that a silo acted on, if it refuses this one as older; else None."""
    if reply.has_error() or "refusal" not in reply.content.config_records:
        return None
    newest = reply.content.config_records["refusal"].get("newest")
    return newest if isinstance(newest, int) and not isinstance(newest, bool) else None


def version_of(reply: Message) -> str | None:
    """Return the version that a silo runs, if it says that it is not the server's."""
    about = reply.content.config_records.get("about")
    version = None if about is None else about.get("version")
    return version if isinstance(version, str) and VERSION.fullmatch(version) else None


def metrics_of(reply: Message) -> dict[str, Any]:
    """Return the metrics of a reply, unchecked; none if it has no record of them."""
    if reply.has_error():
        raise RefusedError(one_line(reply.error.reason))
    records = reply.content.metric_records
    return dict(records["metrics"]) if "metrics" in records else {}
