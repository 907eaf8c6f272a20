"""The messages that the server sends, each with a number by which a silo tells an old one from a new one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from fedamp.federation.server.state import ServerState
from fedamp.federation.wire.encoding import encode
from fedamp.rows import Message as Rows

SPARE = 3600.0
"""Seconds that Flower keeps a message beyond its round."""
SERIALS = 1 << 32
"""Messages that a server may send before it is started again."""

MOST = SERIALS << 30
"""No number is as high: a silo that names a higher one lies."""


@dataclass(frozen=True)
class Life:
    """Which federation this is, and how often its server has been started."""

    name: str
    starts: int


class Outbox:
    """Writes messages to silos. Serial numbers grow from message to message, even when the server is restarted."""

    def __init__(self, state: ServerState, agreement: Mapping[str, Any], life: Life) -> None:
        self.state, self.agreement, self.life = state, json.dumps(agreement), life
        self.serial = life.starts * SERIALS

    def catch_up(self, newest: int) -> bool:
        """Number messages beyond the newest one that a silo has acted on; return whether they were not.

        They are not if the server's record was restored from an older copy. They go on as after one more start, and so
        beyond what any silo has seen.
        """
        if not self.serial < newest < MOST:
            return False
        self.serial = (newest // SERIALS + 1) * SERIALS
        return True

    def question(self, node: int) -> Message:
        """Return the message of the first contact: the server's side of the agreement."""
        return self._message(RecordDict({"config": ConfigRecord({"agreement": self.agreement})}), node, "query")

    def farewell(self, node: int) -> Message:
        """Return the last message: which models all silos take home."""
        config: dict[str, Any] = {"agreement": self.agreement, **self._choice()}
        return self._message(RecordDict({"config": ConfigRecord(config)}), node, "query")

    def _choice(self) -> dict[str, str]:
        """Return what held-out samples have chosen so far, as JSON; nothing if they have not.

        With the federation's own number: a silo may still have what an earlier federation chose.
        """
        one = self.state.choice
        if one is None:
            return {}
        return {"take-home": json.dumps({"entry": one.entry, "round": one.round, "life": self.life.name})}

    def rows(self, rows: Rows, who: str, node: int, kind: str) -> Message:
        """Return a silo's own rows as a message to train on or to evaluate."""
        self.serial += 1
        standing = self.state.standing(who)
        config: dict[str, Any] = {
            "server-round": self.state.k + 1,
            "life": self.life.name,
            "serial": self.serial,
            "accepted": standing.accepted,
            "agreement": self.agreement,
            **({"anew": True} if standing.anew else {}),
            **self._choice(),
        }
        return self._message(RecordDict({"arrays": encode(rows), "config": ConfigRecord(config)}), node, kind)

    def _message(self, content: RecordDict, node: int, kind: str) -> Message:
        # Longer than anyone waits: what comes too late is recognised by its serial number.
        ttl = self.state.rules.reply_timeout + SPARE
        return Message(content, dst_node_id=node, message_type=kind, ttl=ttl, group_id=str(self.state.k + 1))
