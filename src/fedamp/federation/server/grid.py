"""How the server's rounds reach the silos: Flower's Grid, over Flower's memory in the same process."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedamp.federation.server.lateness import Lateness
from fedamp.federation.server.link import Link
from fedamp.federation.wire.encoding import RefusedError
from fedamp.federation.wire.messages import UNREADABLE
from fedamp.federation.wire.objects import gather, in_pieces, put_together

TICK = 0.02
"""Seconds between two looks for replies."""


@dataclass
class Asked:
    """A message that was sent and is not answered yet."""

    message: Message
    sent: float  # time.monotonic()
    reply: Message | None = None  # has been announced; its pieces may still be on their way

    @property
    def node(self) -> int:
        """To whom it was sent."""
        return self.message.metadata.dst_node_id

    @property
    def is_round(self) -> bool:
        """Whether it asks for a round's work; how long another answer takes tells nothing about that."""
        return self.message.metadata.message_type == MessageType.TRAIN


@dataclass
class LinkGrid(Grid):
    """Sends messages and collects replies; who is late does not hold up the others."""

    link: Link
    lateness: Lateness
    open: dict[str, Asked] = field(default_factory=dict)  # by number of the message
    late: set[str] = field(default_factory=set)  # among them, those that no round waits for any more

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return who is online."""
        return list(self.link.state.get_node_info(node_ids=list(self.get_node_ids())))

    def get_node_ids(self) -> Iterable[int]:
        """Return the numbers of those who are online."""
        return self.link.state.get_nodes(self.link.run)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Put messages where their silos find them; return their numbers."""
        state = self.link.state
        names = []
        for message in messages:
            pieces, tree = in_pieces(message)
            name, session = message.metadata.message_id, state.start_session(self.link.run)
            bare = remove_content_from_message(message)
            stored, missing = state.store_message_and_object_tree(bare, tree, session)
            if not stored:  # its silo was removed a moment ago: there will be no reply
                continue
            for piece in missing:
                state.store_own(self.link.run, session, piece, pieces[piece])
            self.open[name] = Asked(message, time.monotonic())
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages that are here as a whole."""
        state = self.link.state
        wanted = {name for name in message_ids if name in self.open}
        for reply in state.get_message_res({name for name in wanted if self.open[name].reply is None}, self.link.run):
            self.open[reply.metadata.reply_to_message_id].reply = reply
        return list(self._whole(wanted))

    def _whole(self, names: Iterable[str]) -> Iterator[Message]:
        state = self.link.state
        for name in names:
            reply = self.open[name].reply
            if reply is None:
                continue
            pieces = gather(reply.metadata.message_id, lambda piece: state.get_object(self.link.run, piece))
            if pieces is None:  # it is still coming in, or only half of it was sent
                continue
            asked = self._forget(name)
            try:
                yield put_together(reply, pieces, state.most)
            except RefusedError as error:
                yield Message(Error(UNREADABLE, str(error)), reply_to=asked.message)

    def _forget(self, name: str) -> Asked:
        """Drop a message with all that belongs to it."""
        asked = self.open.pop(name)
        self.late.discard(name)
        self.link.state.forget(name, *([asked.reply.metadata.message_id] if asked.reply else []))
        return asked

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return the replies that came in time (see `lateness`)."""
        asked = {name: self.open[name] for name in self.push_messages(messages)}
        began, end = time.monotonic(), math.inf if timeout is None else timeout
        replies: list[Message] = []
        answers: list[float] = []
        while True:
            elapsed = time.monotonic() - began
            for reply in self.pull_messages(asked):
                one = asked.pop(reply.metadata.reply_to_message_id)
                replies.append(reply)
                if not reply.has_error():
                    answers.append(elapsed)
                    self._note(one, elapsed)
            self._look_for_late_ones()
            if elapsed >= end or self.lateness.is_over(elapsed, answers, [one.node for one in asked.values()]):
                break
            time.sleep(TICK)
        self._give_up(asked)
        return replies

    def _note(self, one: Asked, seconds: float) -> None:
        """Note how long a silo took for a round's work."""
        if one.is_round:
            self.lateness.answered(one.node, seconds)

    def _give_up(self, asked: Mapping[str, Asked]) -> None:
        """Stop waiting for these; a message that nobody has fetched is taken back.

        One late message for each silo is enough: who has fetched a newer one will not answer the older one.
        """
        for name, one in asked.items():
            if one.is_round:
                self.lateness.missed(one.node)
            stored = self.link.state.message_ins_store.get(name)
            if stored is None or not stored.metadata.delivered_at:
                self._forget(name)
            else:
                for older in [other for other in self.late if self.open[other].node == one.node]:
                    self._forget(older)
                self.late.add(name)

    def _look_for_late_ones(self) -> None:
        """Take replies that come too late for what they are: they say how long their silos need."""
        late = {name: self.open[name] for name in self.late}
        for reply in self.pull_messages(late):
            if not reply.has_error():
                one = late[reply.metadata.reply_to_message_id]
                self._note(one, time.monotonic() - one.sent)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message; Flower's own constructor is what to use."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def set_run(self, run: Run) -> None:
        """Do nothing: the run is the link's."""

    @property
    def run(self) -> Run:
        """The run."""
        return self.link.state.get_run_info(run_ids=[self.link.run])[0]
