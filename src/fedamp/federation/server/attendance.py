"""Which silos take part in the next round: who is online, who is asked at the first contact, who is waited for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from fedamp.federation.moments import now
from fedamp.federation.server.observer import Observer
from fedamp.federation.server.outbox import Outbox
from fedamp.federation.server.state import ServerState
from fedamp.federation.wire import reply_form
from fedamp.federation.wire.encoding import RefusedError, one_line
from fedamp.federation.wire.identity import identity_of
from fedamp.federation.wire.messages import by_sender, check_willing, metrics_of
from fedamp.federation.wire.phrases import OUT
from fedamp.rows import Rows

POLL = 0.25
"""Seconds between two looks at who is online."""
STATUS = 5.0
"""Seconds between two notes in the status that the server is waiting."""
RETURNING = 60.0
"""Seconds that a server that was started again waits for all silos of its last round to find it: rounds are quick, and
would else go on without them."""
ASK_AGAIN = 60.0
"""Seconds until a silo that was not let in is asked again, and seconds it then has to answer; both double each time."""


@dataclass(frozen=True)
class NotLetIn:
    """A silo that was not let in: why, when to ask it again, and how long to wait for its answer."""

    reason: str
    again: float
    patience: float
    connected: str = ""  # since when it was, as Flower says it


class Attendance:
    """Finds the silos of a round. A new one is asked whether its plan is the same, and is then given a row.

    `names` are the silos that may take part, by identity; `first_model(identity)` is a silo's first row `(1, d)`;
    `turn_away(name)` closes the door to one that is removed.
    """

    def __init__(
        self,
        state: ServerState,
        names: Mapping[str, str],
        first_model: Callable[[str], Rows],
        outbox: Outbox,
        observer: Observer,
        turn_away: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.state, self.names, self.first_model = state, names, first_model
        self.outbox, self.observer, self.turn_away = outbox, observer, turn_away
        self.willing: set[str] = set()  # who has been asked and may have a row
        self.not_let_in: dict[str, NotLetIn] = {}
        self.connected: dict[str, str] = {}  # who is online, and since when
        self.returning_until = time.monotonic() + RETURNING

    def gather(self, grid: Grid, patience: float = math.inf) -> dict[str, int]:
        """Wait until enough silos are there, and return their nodes; new ones have been asked and given a row.

        After `patience` seconds, return those that are there.
        """
        said, end, written = "", time.monotonic() + patience, -math.inf
        while True:
            nodes = self._online(grid)
            new = {who: node for who, node in nodes.items() if not self._known(who)}
            hurry = len(nodes) - len(new) >= self.state.rules.min_silos  # the others could play
            self._ask(grid, {who: node for who, node in new.items() if self._time_to_ask(who)}, hurry)
            nodes = {who: node for who, node in nodes.items() if self._known(who)}
            enough = len(nodes) >= self.state.rules.min_silos and not self._are_returning(nodes)
            if enough or time.monotonic() > end:
                if late := [who for who in nodes if who not in self.state.order]:
                    self.state.join(late, Rows.cat([self.first_model(who) for who in late]))
                self.observer.status("running")
                return nodes
            paused = self._paused()
            if (text := paused or self._waiting(len(nodes))) != said:  # once, not at every look
                said, written = text, -math.inf
                self.observer.say(text)
            if time.monotonic() >= written + STATUS:  # it goes to the disk each time, and a wait may take days
                written = time.monotonic()
                self.observer.status("paused" if paused else "waiting")
            time.sleep(POLL)

    def _are_returning(self, nodes: Mapping[str, int]) -> bool:
        """Return whether silos that had a row when the server was started may still come back."""
        away = [who for who in self.state.order if who in self.names and who not in nodes]
        awaited = [who for who in away if self._may_come(who) and self.state.standing(who).since is None]
        return bool(awaited) and time.monotonic() < self.returning_until

    def _may_come(self, who: str) -> bool:
        return self._welcome(who) and not self.state.standing(who).out

    def _known(self, who: str) -> bool:
        return (who in self.state.order or who in self.willing) and not self.state.standing(who).out

    def _online(self, grid: Grid) -> dict[str, int]:
        """Return the nodes of the silos that are online and welcome, by identity."""
        for identity in self.observer.admitted():
            self.state.admit(identity)
            self.observer.say(f"{self.names[identity]} is let in again")
        self._rearrange()
        online = {identity_of(node): node for node in grid.get_nodes()}
        nodes = {who: node.node_id for who, node in online.items()}
        self.connected = {who: node.last_activated_at for who, node in online.items()}
        self.state.online = set(online)
        for who in self.names:
            if who in nodes:
                self.state.standing(who).seen = now()
        return {who: nodes[who] for who in self.names if who in nodes and self._welcome(who)}

    def _welcome(self, who: str) -> bool:
        return not (self.state.standing(who).aside or self.state.standing(who).removed)

    def out_and_here(self, grid: Grid) -> dict[str, int]:
        """Return the nodes of the silos that train no more, have a row and are online."""
        return {who: node for who, node in self._online(grid).items() if who in self.state.order and self._out(who)}

    def _out(self, who: str) -> bool:
        return self.state.standing(who).out

    def leave_out(self, who: str, reason: str) -> None:
        """Go on without a silo that trains no more, until it has been started again and says otherwise."""
        standing = self.state.standing(who)
        if not standing.out:
            then = "no round waits for it until its operator allows more"
            self.observer.say(f"{self.names[who]} is out: {reason}; {then}")
        standing.out, standing.reason = True, reason
        self._ask_later(who, reason)

    def _ask_later(self, who: str, reason: str) -> None:
        before = self.not_let_in.get(who)
        patience = ASK_AGAIN if before is None else 2 * before.patience
        at = self.connected.get(who, "")
        self.not_let_in[who] = NotLetIn(reason, time.monotonic() + patience, patience, at)

    def _rearrange(self) -> None:
        """Take out and readmit whom the operator names; it is on the disk before anyone is sent anything."""
        readmitted, removed = list(self.observer.readmitted()), list(self.observer.removed())
        for who in readmitted:
            self.state.begin_anew(who)
        if readmitted:
            names = ", ".join(self.names[who] for who in readmitted)
            self.observer.say(f"readmitted: {names}; for a silo that has lost its memory: {self.state.method.anew}")
        for who in removed:
            self.state.remove(who)
            self.willing.discard(who)
            self.turn_away(self.names[who])
            self.observer.say(
                f"{self.names[who]} is removed: its key is refused, and its row is in no mixture any more"
            )
        if readmitted or removed:
            self.observer.rearranged(readmitted, removed)

    def _paused(self) -> str:
        """Return why no round can be played, whoever comes; "" if one may be. Only who is out is a reason."""
        out, needed = self.state.out(), self.state.rules.min_silos
        left = sum(self._may_come(who) for who in self.names)
        if not out or left >= needed:
            return ""
        who = "; ".join(f"{self.names[each]}: {reason}" for each, reason in out.items())
        return (
            f"paused after round {self.state.k}: a round needs {needed} silos (min_silos), and {left} can still train; "
            f"out: {who}. It goes on when a silo that is out is started again and allowed more (fedamp silo up "
            "--dp-epsilon or --max-rounds), or when this server is, with a silo added or min_silos lowered in "
            "federation.json"
        )

    def _waiting(self, there: int) -> str:
        aside = [name for who, name in self.names.items() if self.state.standing(who).aside]
        if there >= self.state.rules.min_silos:
            return f"waiting up to {RETURNING:.0f} s for the silos of the last round; {there} are here"
        text = f"waiting for silos: {there} here, {self.state.rules.min_silos} needed to continue"
        return text + (f"; set aside until you admit them: {', '.join(aside)}" if aside else "")

    def _ask(self, grid: Grid, nodes: Mapping[str, int], hurry: bool) -> None:
        """Compare plans with silos at the first contact, and note those that may take part."""
        if not nodes:
            return
        questions = {who: self.outbox.question(node) for who, node in nodes.items()}
        patience = max(self.not_let_in[who].patience if who in self.not_let_in else ASK_AGAIN for who in nodes)
        rules = self.state.rules
        patience = min(patience, rules.reply_timeout, rules.late_after if hurry else math.inf)
        replies = dict(by_sender(grid.send_and_receive(list(questions.values()), timeout=patience), questions))
        for who in nodes:
            try:
                samples = _samples(replies.get(who), patience)
            except Exception as error:  # whatever a reply holds
                self._refuse(who, one_line(error))
                continue
            again = "back, and trains again" if self._out(who) else "here for the first time"
            standing = self.state.standing(who)
            standing.samples, standing.reason, standing.out = samples, None, False
            self.willing.add(who)
            self.not_let_in.pop(who, None)
            self.observer.say(f"{self.names[who]} is {again}, with {samples} training samples")

    def _time_to_ask(self, who: str) -> bool:
        known = self.not_let_in.get(who)
        if known is None or time.monotonic() > known.again:
            return True
        return self._out(who) and self.connected.get(who, "") != known.connected  # it has been started again

    def _refuse(self, who: str, reason: str) -> None:
        """Note why a silo is not let in, and ask again later: each time with more patience, after a longer pause."""
        if reason in OUT:
            self.leave_out(who, reason)
        elif self._out(who):  # it does not answer, say: why it is out is still true
            self._ask_later(who, reason)
        else:
            before = self.not_let_in.get(who)
            self._ask_later(who, reason)
            self.state.standing(who).reason = reason
            if before is None or before.reason != reason:
                self.observer.say(f"{self.names[who]} is not let in: {reason}")
        self.observer.status("waiting" if self.state.k == 0 else "running")


def _samples(reply: Message | None, patience: float) -> int:
    """Return how many training samples a silo that is willing to take part has; raise if it is not willing."""
    if reply is None:
        raise RefusedError(f"no answer within {patience:g} s")
    check_willing(reply)
    return reply_form.check_samples(metrics_of(reply).get("num-examples"))
