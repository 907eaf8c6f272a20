"""One Flower strategy for all methods: it carries messages between the server's state and the silos' apps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from logging import INFO, WARNING

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedamp import __version__
from fedamp.federation.server.attendance import Attendance
from fedamp.federation.server.observer import Observer, PlayedRound
from fedamp.federation.server.outbox import Outbox
from fedamp.federation.server.state import Reply, ServerState
from fedamp.federation.wire import reply_form
from fedamp.federation.wire.encoding import RefusedError, decode, one_line
from fedamp.federation.wire.messages import by_sender, check_willing, metrics_of, newest_of, version_of
from fedamp.federation.wire.phrases import LOST_MEMORY, OLDER_SERVER, OUT

LAST_PATIENCE = 120.0
"""Seconds to wait for enough silos to score the last models; after that, those that are there are enough."""
FIRST_PAUSE, LONGEST_PAUSE = 3.0, 300.0
"""Seconds before a round that did not count is played again; the pause doubles."""


class RowStrategy(Strategy):
    """Sends each silo its own message and takes the replies that pass the checks; all other silos count as absent.

    A round with fewer than `min_silos` good replies does not count. `metrics` are the names that a reply may use.
    """

    def __init__(
        self,
        state: ServerState,
        attendance: Attendance,
        outbox: Outbox,
        observer: Observer,
        metrics: list[str],
        rounds: int,
    ) -> None:
        self.state, self.attendance, self.outbox, self.observer = state, attendance, outbox, observer
        self.names, self.metrics, self.rounds = attendance.names, metrics, rounds
        self.sent: dict[str, Message] = {}
        self.failures, self.last_failure = 0, ""
        self.clock = self.server_seconds = 0.0
        self.bytes_down = 0

    def summary(self) -> None:
        """Log what the strategy does."""
        log(INFO, "\t├──> Method: %s", self.state.method)
        log(INFO, "\t├──> Silos: %s", ", ".join(self.names.values()))
        log(INFO, "\t└──> Rules: %s", self.state.rules)

    # -- a round ---------------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a message for each silo that is there: its own rows."""
        self.sent = {}
        if self.state.k >= self.rounds:
            return []
        if self.failures:
            doubled = min(self.failures - 1, 20)  # silos may stay away for good: no number must overflow
            time.sleep(min(FIRST_PAUSE * 2**doubled, LONGEST_PAUSE))
        nodes = self.attendance.gather(grid)
        self.clock = time.perf_counter()
        self.sent = self._send(nodes, MessageType.TRAIN)
        self.server_seconds = time.perf_counter() - self.clock
        return list(self.sent.values())

    def _send(self, nodes: Mapping[str, int], kind: str) -> dict[str, Message]:
        rows = self.state.send()
        self.bytes_down = sum(part.num_bytes for who in nodes for part in rows[who].values())
        return {who: self.outbox.rows(rows[who], who, node, kind) for who, node in nodes.items()}

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the replies that pass the checks; return the round's metrics."""
        if not self.sent:
            return None, None
        clock = time.perf_counter()
        decoded, absent = self._read(replies)
        absent |= {who: reason for who, reason in self.state.out().items() if who in self.state.order}
        good, refused = self.state.sift(decoded)
        for who, reason in refused.items():
            absent[who] = self._strike(who, reason)
        self.state.attended(good, absent)
        if len(good) < self.state.rules.min_silos:
            self._failed(len(good), absent)
            return None, None
        self.failures, self.last_failure = 0, ""
        order = tuple(self.state.order)
        diagnostics = self.state.receive(good)
        self.server_seconds += time.perf_counter() - clock
        seconds = time.perf_counter() - self.clock
        bytes_up = sum(part.num_bytes for reply in good.values() for part in reply.rows.values())
        num_bytes = {"down": self.bytes_down, "up": bytes_up}
        played = PlayedRound(self.state.k, good, absent, diagnostics, order, seconds, self.server_seconds, num_bytes)
        self.observer.round_played(played)
        return None, MetricRecord({"silos": len(good), "seconds": seconds})

    def _failed(self, good: int, absent: Mapping[str, str]) -> None:
        why = "; ".join(f"{self.names[who]}: {reason}" for who, reason in absent.items())
        text = (
            f"round {self.state.k + 1} does not count: {good} of the {self.state.rules.min_silos} good replies needed "
            f"({why}); playing it again"
        )
        self.failures += 1
        if text != self.last_failure:
            self.last_failure = text
            self.observer.say(text)
        self.observer.status("waiting")

    def _read(self, replies: Iterable[Message]) -> tuple[dict[str, Reply], dict[str, str]]:
        """Return the replies, decoded; and for all others who were asked, why there is none."""
        decoded: dict[str, Reply] = {}
        timeout = self.state.rules.reply_timeout
        over = time.perf_counter() - self.clock >= timeout
        absent = dict.fromkeys(self.sent, f"no reply within {timeout:g} s" if over else "late: the others had answered")
        for who in self.state.order:
            self.state.standing(who).refuses = False
        for who, reply in by_sender(replies, self.sent):
            try:
                check_willing(reply)
            except RefusedError as error:  # it says itself that it can't: it is absent, not bad
                absent[who] = self._refusal(who, str(error), reply)
                continue
            try:
                decoded[who] = self._decode(reply)
                self._note_version(who, version_of(reply))
                del absent[who]
            except Exception as error:  # whatever a reply holds must not stop the others
                absent[who] = self._strike(who, one_line(error) or type(error).__name__)
        return decoded, absent

    def _note_version(self, who: str, version: str | None) -> None:
        """Tell once that a silo runs another version of fedamp: it speaks the same protocol, so that is no fault."""
        if version is not None and version != self.state.standing(who).version:
            self.observer.say(f"{self.names[who]} runs fedamp {version}, this server {__version__}")
        self.state.standing(who).version = version

    def _refusal(self, who: str, reason: str, reply: Message) -> str:
        """Note that a silo can't take part, and return why; what can be done about it is done, or said once."""
        newest, standing = newest_of(reply), self.state.standing(who)
        if newest is not None and self.outbox.catch_up(newest):
            self.observer.caught_up(self.outbox.serial)
        if reason == LOST_MEMORY:
            reason += f"; to let it begin anew: fedamp federation readmit FOLDER {self.names[who]}"
        if reason == OLDER_SERVER:
            reason += f"; to go on from there with all silos: stop, then fedamp federation rewind FOLDER {self.state.k}"
        if reason in OUT:
            self.attendance.leave_out(who, reason)
        elif not reply.has_error():
            if standing.reason != reason and newest is None:
                self.observer.say(f"{self.names[who]} refuses: {reason}")
            standing.refuses = True
        standing.reason = reason
        return reason

    def _decode(self, reply: Message) -> Reply:
        if reply.has_error():
            raise RefusedError(one_line(reply.error.reason))
        content = reply.content
        names = sorted(content.keys())
        if set(names) - {"about"} != {"arrays", "metrics"} or "arrays" not in content.array_records:
            raise RefusedError(f"it holds {one_line(', '.join(names), 80) or 'nothing'}; expected arrays and metrics")
        samples = reply_form.check_samples(metrics_of(reply).get("num-examples"))
        metrics = reply_form.check_metrics(metrics_of(reply), self.metrics)
        rows = decode(content.array_records["arrays"], self.state.reply_like)
        reply_form.check_count_entry(rows, samples)
        reply_form.check_noise(rows)
        reply_form.check_variances(rows, self.state.variances)
        return Reply(rows, samples, metrics)

    def _strike(self, who: str, reason: str) -> str:
        """Note a bad reply, and return the reason."""
        aside = self.state.strike(who, reason)
        self.observer.say(f"bad reply from {self.names[who]}: {reason}")
        log(WARNING, "bad reply from %s: %s", self.names[who], reason)
        if aside:
            strikes = self.state.rules.strikes
            after = f"{strikes} bad replies in a row" if strikes > 1 else "a bad reply"
            self.observer.say(f"{self.names[who]} is set aside after {after}")
        self.observer.status("running")
        return reason

    # -- after the last round --------------------------------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return nothing until the last round is played; then what each silo would get next."""
        if self.state.k < self.rounds:
            return []
        # The rounds are played: nobody who has left is waited for. Who trains no more still gets the last models.
        nodes = {**self.attendance.gather(grid, LAST_PATIENCE), **self.attendance.out_and_here(grid)}
        self.sent = self._send(nodes, MessageType.EVALUATE)
        return list(self.sent.values())

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Take the last scores."""
        if self.state.k < self.rounds:
            return None
        scored: dict[str, Reply] = {}
        for who, reply in by_sender(replies, self.sent):
            try:
                check_willing(reply)
                metrics = reply_form.check_metrics(metrics_of(reply), self.metrics)
                scored[who] = Reply({}, reply_form.check_samples(metrics.get("num-examples")), metrics)
            except Exception as error:
                self.observer.say(f"no last score from {self.names[who]}: {error}")
        self.observer.last_scores(scored)
        return MetricRecord({"silos": len(scored)})

    def say_farewell(self, grid: Grid) -> None:
        """Tell the silos that have scored the last models which ones all of them take home; nobody waits for long."""
        if self.state.choice is not None:
            nodes = [message.metadata.dst_node_id for message in self.sent.values()]
            grid.send_and_receive([self.outbox.farewell(node) for node in nodes], timeout=LAST_PATIENCE)
