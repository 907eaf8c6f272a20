"""One Flower strategy for all nine methods: it carries messages between the state and the silos' apps."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedamp.federation.server.state import Reply, ServerState
from fedamp.federation.wire import reply_checks
from fedamp.federation.wire.encoding import RefusedError, decode, encode, one_line
from fedamp.federation.wire.identity import identity_of
from fedamp.rows import Rows

POLL = 3.0
"""Seconds between two looks at who is online."""
SPARE = 3600.0
"""Seconds that Flower keeps a message beyond its round."""
SERIALS = 1 << 32
"""Messages that a server may send before it is started again."""
LAST_PATIENCE = 120.0
"""Seconds that the last scores are waited for, beyond which who is there will do."""
FIRST_PAUSE, LONGEST_PAUSE = 3.0, 300.0
"""Seconds before a round that did not count is played again; the pause doubles."""
ASK_AGAIN = 60.0
"""Seconds after which a silo that was not let in is asked once more, and that it has to answer; both double."""


@dataclass(frozen=True)
class Played:
    """A round that was played, by silos' identities."""

    k: int
    told: Mapping[str, Reply]
    absent: Mapping[str, str]  # who was not in it, and why
    diagnostics: Mapping[str, Any]
    order: tuple[str, ...]  # whose row is where
    seconds: float  # of the whole round
    server_seconds: float  # of them, the server's own work


@dataclass(frozen=True)
class Asked:
    """A silo that was not let in: why, when it is to be asked again, and how long to wait for its answer."""

    reason: str
    again: float
    patience: float


class RowStrategy(Strategy):
    """Sends each silo its own message and takes replies that are as they should be; all others count as absent.

    `names` are the silos that may take part, by identity; `first_model(identity)` is a silo's first row `(1, d)`.
    `agreement` is compared at the first contact. `after` is called with each round that was played, before the next one
    is sent: what it writes is on the disk by then. A round with fewer than `min_silos` replies does not count. `life`
    is the federation's, and `starts` counts the server's: together they tell an old message from a new one.
    """

    def __init__(
        self,
        state: ServerState,
        names: Mapping[str, str],
        first_model: Callable[[str], Rows],
        agreement: Mapping[str, Any],
        metrics: list[str],
        rounds: int,
        after: Callable[[Played], None] = lambda played: None,
        last: Callable[[Mapping[str, Reply]], None] = lambda told: None,
        say: Callable[[str], None] = lambda text: log(INFO, text),
        admitted: Callable[[], Iterable[str]] = lambda: (),
        status: Callable[[str], None] = lambda state: None,
        life: str = "",
        starts: int = 0,
    ) -> None:
        self.state, self.names, self.first_model = state, names, first_model
        self.agreement, self.metrics, self.rounds = json.dumps(agreement), metrics, rounds
        self.after, self.last, self.say, self.admitted = after, last, say, admitted
        self.status, self.life = status, life
        self.serial = starts * SERIALS  # grows from message to message, also when the server was started again
        self.sent: dict[str, Message] = {}
        self.willing: set[str] = set()  # who has been asked and may have a row
        self.asked: dict[str, Asked] = {}  # who was not let in
        self.failures, self.last_failure = 0, ""
        self.clock = self.server_seconds = 0.0

    def summary(self) -> None:
        """Log what the strategy does."""
        log(INFO, "\t├──> Method: %s", self.state.method)
        log(INFO, "\t├──> Silos: %s", ", ".join(self.names.values()))
        log(INFO, "\t└──> Rules: %s", self.state.rules)

    # -- who is there ----------------------------------------------------------------------------------------------

    def _online(self, grid: Grid) -> dict[str, int]:
        """Return the nodes of the silos that are online and welcome, by identity."""
        for identity in self.admitted():
            self.state.admit(identity)
            self.say(f"{self.names[identity]} is let in again")
        nodes = {identity_of(node): node.node_id for node in grid.get_nodes()}
        return {who: nodes[who] for who in self.names if who in nodes and not self.state.standing(who).aside}

    def _gather(self, grid: Grid, patience: float = math.inf) -> dict[str, int]:
        """Wait until enough silos are there, and return them; new ones have been asked and given a row.

        After `patience` seconds, return those that are there.
        """
        said, end = "", time.monotonic() + patience
        while True:
            nodes = self._online(grid)
            new = {who: node for who, node in nodes.items() if who not in self.state.order and who not in self.willing}
            self._ask(grid, {who: node for who, node in new.items() if self._time_to_ask(who)})
            nodes = {who: node for who, node in nodes.items() if who in self.state.order or who in self.willing}
            if len(nodes) >= self.state.rules.min_silos or time.monotonic() > end:
                if late := [who for who in nodes if who not in self.state.order]:
                    self.state.join(late, Rows.cat([self.first_model(who) for who in late]))
                return nodes
            if (words := self._waiting(len(nodes))) != said:  # once, not at every look
                said = words
                self.say(words)
                self.status("waiting")
            time.sleep(POLL)

    def _waiting(self, there: int) -> str:
        aside = [name for who, name in self.names.items() if self.state.standing(who).aside]
        words = f"waiting for silos: {there} there, {self.state.rules.min_silos} needed to go on"
        return words + (f"; set aside until you admit them: {', '.join(aside)}" if aside else "")

    def _ask(self, grid: Grid, nodes: Mapping[str, int]) -> None:
        """Compare plans with silos at the first contact, and note those that may take part."""
        if not nodes:
            return
        config = ConfigRecord({"agreement": self.agreement})
        questions = {who: self._message(RecordDict({"config": config}), node, "query") for who, node in nodes.items()}
        patience = max(self.asked[who].patience if who in self.asked else ASK_AGAIN for who in nodes)
        patience = min(patience, self.state.rules.reply_timeout)
        replies = dict(by_sender(grid.send_and_receive(list(questions.values()), timeout=patience), questions))
        for who in nodes:
            try:
                if who not in replies:
                    raise RefusedError(f"no answer within {patience:g} s")
                _check_willing(replies[who])
                samples = reply_checks.check_samples(_metrics(replies[who]).get("num-examples"))
            except Exception as error:  # whatever a reply holds
                self._not_let_in(who, one_line(error))
                continue
            self.state.standing(who).samples, self.state.standing(who).reason = samples, None
            self.willing.add(who)
            self.asked.pop(who, None)
            self.say(f"{self.names[who]} is here for the first time, with {samples} training samples")

    def _time_to_ask(self, who: str) -> bool:
        return who not in self.asked or time.monotonic() > self.asked[who].again

    def _not_let_in(self, who: str, reason: str) -> None:
        """Note it, and ask again later: each time with more patience, and after a longer time."""
        before = self.asked.get(who)
        patience = ASK_AGAIN if before is None else 2 * before.patience
        self.asked[who] = Asked(reason, time.monotonic() + patience, patience)
        self.state.standing(who).reason = reason
        if before is None or before.reason != reason:
            self.say(f"{self.names[who]} is not let in: {reason}")
        self.status("waiting" if self.state.k == 0 else "running")

    # -- a round ---------------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a message for each silo that is there: its own rows."""
        self.sent = {}
        if self.state.k >= self.rounds:
            return []
        if self.failures:
            time.sleep(min(FIRST_PAUSE * 2 ** (self.failures - 1), LONGEST_PAUSE))
        nodes = self._gather(grid)
        self.clock = time.perf_counter()
        messages = self.state.send()
        self.sent = {who: self._rows(messages[who], who, nodes[who], MessageType.TRAIN) for who in nodes}
        self.server_seconds = time.perf_counter() - self.clock
        return list(self.sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the replies that are as they should be; return the round's metrics."""
        if not self.sent:
            return None, None
        clock = time.perf_counter()
        told, absent = self._read(replies)
        good, refused = self.state.sift(told)
        for who, reason in refused.items():
            absent[who] = self._struck(who, reason)
        if len(good) < self.state.rules.min_silos:
            self._failed(len(good), absent)
            return None, None
        self.failures, self.last_failure = 0, ""
        order = tuple(self.state.order)
        diagnostics = self.state.receive(good)
        self.server_seconds += time.perf_counter() - clock
        seconds = time.perf_counter() - self.clock
        self.after(Played(self.state.k, good, absent, diagnostics, order, seconds, self.server_seconds))
        return None, MetricRecord({"silos": len(good), "seconds": seconds})

    def _failed(self, good: int, absent: Mapping[str, str]) -> None:
        why = "; ".join(f"{self.names[who]}: {reason}" for who, reason in absent.items())
        words = (
            f"round {self.state.k + 1} does not count: {good} of the {self.state.rules.min_silos} replies that are needed "
            f"({why}); it is played again"
        )
        self.failures += 1
        if words != self.last_failure:
            self.last_failure = words
            self.say(words)
        self.status("waiting")

    def _read(self, replies: Iterable[Message]) -> tuple[dict[str, Reply], dict[str, str]]:
        """Return what was replied, decoded; and for all others who were asked, why there is nothing."""
        told: dict[str, Reply] = {}
        absent = dict.fromkeys(self.sent, f"no reply within {self.state.rules.reply_timeout:g} s")
        for who, reply in by_sender(replies, self.sent):
            try:
                _check_willing(reply)
            except RefusedError as error:  # it says itself that it can't: absent, and no harm meant
                absent[who] = str(error)
                self.state.standing(who).reason = str(error)
                continue
            try:
                told[who] = self._decode(reply)
                del absent[who]
            except Exception as error:  # whatever a reply holds must not stop the others
                absent[who] = self._struck(who, one_line(error) or type(error).__name__)
        return told, absent

    def _decode(self, reply: Message) -> Reply:
        content = reply.content
        names = sorted(content.keys())
        if names != ["arrays", "metrics"] or "arrays" not in content.array_records:
            raise RefusedError(f"it holds {one_line(', '.join(names), 80) or 'nothing'}; expected arrays and metrics")
        samples = reply_checks.check_samples(_metrics(reply).get("num-examples"))
        metrics = reply_checks.check_metrics(_metrics(reply), self.metrics)
        rows = decode(content.array_records["arrays"], self.state.reply_like)
        reply_checks.check_count_entry(rows, samples)
        reply_checks.check_variances(rows, self.state.variances)
        return Reply(rows, samples, metrics)

    def _struck(self, who: str, reason: str) -> str:
        aside = self.state.strike(who, reason)
        self.say(f"bad reply from {self.names[who]}: {reason}")
        log(WARNING, "bad reply from %s: %s", self.names[who], reason)
        if aside:
            self.say(f"{self.names[who]} is set aside after {self.state.rules.strikes} bad replies in a row")
        self.status("running")
        return reason

    # -- after the last round --------------------------------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return nothing until the last round is played; then what each silo would get next."""
        if self.state.k < self.rounds:
            return []
        # The rounds are played: who is gone now is not waited for.
        nodes = self._gather(grid, LAST_PATIENCE)
        messages = self.state.send()
        self.sent = {who: self._rows(messages[who], who, nodes[who], MessageType.EVALUATE) for who in nodes}
        return list(self.sent.values())

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Take the last scores."""
        if self.state.k < self.rounds:
            return None
        told = {}
        for who, reply in by_sender(replies, self.sent):
            try:
                _check_willing(reply)
                metrics = reply_checks.check_metrics(_metrics(reply), self.metrics)
                told[who] = Reply({}, reply_checks.check_samples(metrics.get("num-examples")), metrics)
            except Exception as error:
                self.say(f"no last score from {self.names[who]}: {error}")
        self.last(told)
        return MetricRecord({"silos": len(told)})

    # -- messages --------------------------------------------------------------------------------------------------

    def _rows(self, rows: Any, who: str, node: int, kind: str) -> Message:
        self.serial += 1
        config: dict[str, Any] = {
            "server-round": self.state.k + 1,
            "life": self.life,
            "serial": self.serial,
            "accepted": self.state.standing(who).accepted,
            "agreement": self.agreement,
        }
        return self._message(RecordDict({"arrays": encode(rows), "config": ConfigRecord(config)}), node, kind)

    def _message(self, content: RecordDict, node: int, kind: str) -> Message:
        # Longer than anyone waits: what comes too late is known by its serial number.
        ttl = self.state.rules.reply_timeout + SPARE
        return Message(content, dst_node_id=node, message_type=kind, ttl=ttl, group_id=str(self.state.k + 1))


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


def _check_willing(reply: Message) -> None:
    """Raise where a reply is an error, or says that its silo can't take part."""
    if reply.has_error():
        raise RefusedError(f"no usable reply ({one_line(reply.error.reason)})")
    if "refusal" in reply.content.config_records:
        raise RefusedError(one_line(reply.content.config_records["refusal"].get("reason", "it gave no reason")))


def _metrics(reply: Message) -> dict[str, Any]:
    records = reply.content.metric_records
    return dict(records["metrics"]) if "metrics" in records else {}
