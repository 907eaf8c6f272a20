"""The server's half over a network: rows by owner, whatever order the silos come in. It knows nothing of Flower.

An identity is a text that stays the same when a silo comes back: the hash of its key. Rows are in the order in
which the silos came; what people read is in the order of the members.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedamp.config.reply_limits import Rules
from fedamp.federation.moments import now
from fedamp.federation.wire import reply_form
from fedamp.federation.wire.allowed_metrics import withholds
from fedamp.methods import Method
from fedamp.records.checkpoints import Checkpoint
from fedamp.records.take_home import Candidate
from fedamp.rows import Message, Rows, State
from fedamp.runs import reply_checks as reply_limits

NOT_CONNECTED = "not connected"


@dataclass
class Standing:
    """What the server remembers about a silo besides its row."""

    accepted: int = 0  # the last round whose reply was taken, 0 for none
    strikes: int = 0  # bad replies in a row
    aside: bool = False  # after too many of them: left out until the operator lets it in again
    reason: str | None = None  # why the last reply was not taken
    since: int | None = None  # the round since which it has been missing
    since_time: str | None = None
    refuses: bool = False  # it was reached, and said itself that it can't take part
    out: bool = False  # it trains no more, unless its own operator allows more: it is not asked, nor waited for
    anew: bool = False  # the operator lets it begin anew if it has lost its memory, until its next reply
    version: str | None = None  # of fedamp there, if it is not the server's
    removed: bool = False  # its key is not accepted any more, and it has no row
    samples: int | None = None
    refused: int = 0  # bad replies in all
    seen: str | None = None  # when it was last online or replied
    data_changed: int | None = None  # the round in which its data changed, as it said last
    withholds: bool = False  # it keeps its scores at home: it protects its samples
    lengths: dict[str, float] = field(default_factory=dict)  # of its last accepted reply


@dataclass(frozen=True)
class Reply:
    """A reply that was decoded: what the method gets, and what people read."""

    rows: Message
    samples: int
    metrics: Mapping[str, float]


@dataclass
class ServerState:
    """A method's server half for silos that come, go and return. `k` rounds have been played."""

    method: Method
    rules: Rules
    first: Rows  # a first model (1, d), to know what messages look like
    variances: Tensor | None = None  # which of a model's buffers are variances, (b,)
    steps: Callable[[int], float] = float  # of a silo in a round, by its samples; in proportion to them if not known
    k: int = 0
    method_state: State | None = None
    order: list[str] = field(default_factory=list)  # whose row is where
    standings: dict[str, Standing] = field(default_factory=dict)
    sent: State | None = None  # the state as it was when the present round was sent
    message: Message = field(default_factory=dict)  # what that round sends, a row for each of `order`
    counted_at: str | None = None  # when the last round that counts ended
    choice: Candidate | None = None  # what held-out samples have chosen for all silos so far: they are told
    online: set[str] = field(default_factory=set)  # who was connected at the last look

    def __post_init__(self) -> None:
        _, self.reply_like = reply_form.templates(self.method, self.first)
        models = {name: rows for name, rows in self.reply_like.items() if name != "samples"}
        (first,) = reply_limits.measure(models, {}, self.method, torch.ones((1, 1)))
        assert first is not None, "a first model is finite"
        self.first_lengths = {name: length for name, length in first.lengths.items() if length > 0}

    def standing(self, identity: str) -> Standing:
        """Return what is remembered about a silo; nothing, for a new one."""
        return self.standings.setdefault(identity, Standing())

    def join(self, identities: Sequence[str], w: Rows) -> None:
        """Give new silos their rows, with their first models; what the first ones share is made from all of theirs."""
        new = self.method.server_init(w)
        self.method_state = new if self.method_state is None else self.method_state.append(new)
        self.order.extend(identities)
        for identity in identities:
            self.standing(identity)

    def send(self) -> dict[str, Message]:
        """Return what the next round sends to each silo that has a row."""
        assert self.method_state is not None, "no silo has joined"
        self.sent, self.message = self.method.server_send(self.method_state, self.k + 1)
        return {identity: self._part(slice(i, i + 1)) for i, identity in enumerate(self.order)}

    def _part(self, index: slice | Tensor) -> Message:
        return {name: rows[index] for name, rows in self.message.items()}

    def sift(self, replies: Mapping[str, Reply]) -> tuple[dict[str, Reply], dict[str, str]]:
        """Return the replies that can be used, and why each of the others can't."""
        measured = {who: self._measured(who, reply) for who, reply in replies.items()}
        known = [standing.lengths for standing in self.standings.values() if standing.lengths]
        away = torch.tensor([identity not in replies for identity in self.order])
        waiting = reply_limits.waiting(self._part(away), self.method, self.reply_like)
        sound = {who: one for who, one in measured.items() if one is not None}
        found = reply_limits.refused(sound, self.rules, waiting, [*known, self.first_lengths])
        refused = dict.fromkeys(measured.keys() - sound.keys(), "its norm is too large to be computed")
        refused |= {who: f"{why.text}. {reply_limits.CURE}" for who, why in found.items()}
        return {who: reply for who, reply in replies.items() if who not in refused}, refused

    def _measured(self, who: str, reply: Reply) -> reply_limits.Measured | None:
        """Return a reply in numbers; None for one whose values are finite, but not their squares."""
        i, steps = self.order.index(who), torch.tensor([[self.steps(reply.samples)]])
        (one,) = reply_limits.measure(reply.rows, self._part(slice(i, i + 1)), self.method, steps)
        return None if one is None else replace(one, lengths={**one.lengths, "samples": float(reply.samples)})

    def receive(self, replies: Mapping[str, Reply]) -> dict[str, Any]:
        """Take the round's replies, which have been sifted, and return the method's diagnostics."""
        assert self.sent is not None, "nothing was sent"
        present = torch.tensor([identity in replies for identity in self.order])
        here = [identity for identity in self.order if identity in replies]
        reply = {name: Rows.cat([replies[who].rows[name] for who in here]) for name in self.reply_like}
        diagnostics = self.method.diagnostics(self.sent)
        self.method_state = self.method.server_receive(self.sent, reply, present)
        self.k += 1
        self.counted_at = now()
        for who in here:
            standing = self.standing(who)
            standing.seen = self.counted_at
            standing.accepted, standing.samples = self.k, replies[who].samples
            standing.withholds = withholds(replies[who].metrics)
            standing.strikes, standing.reason, standing.since = 0, None, None
            standing.since_time, standing.anew = None, False
            if (measured := self._measured(who, replies[who])) is not None:
                standing.lengths = dict(measured.lengths)
        for who in set(self.order) - set(here):
            standing = self.standing(who)
            standing.since = standing.since or self.k
        return diagnostics

    def attended(self, good: Collection[str], absent: Mapping[str, str]) -> None:
        """Note who is in the round that was sent, whether it counts or not, and since when and why others are not.

        One that has a row, and neither replied nor gave a reason, was not asked: it is set aside or not connected.
        """
        for who in self.order:
            standing = self.standing(who)
            if who in good:
                standing.reason = standing.since = standing.since_time = None
                continue
            asked_for = standing.reason if standing.aside else NOT_CONNECTED
            standing.reason = absent.get(who, asked_for)
            standing.since = standing.since or self.k + 1
            standing.since_time = standing.since_time or time.strftime("%Y-%m-%dT%H:%M:%S")

    def strike(self, identity: str, reason: str) -> bool:
        """Note a bad reply, and return whether the silo is set aside for it."""
        standing = self.standing(identity)
        standing.strikes, standing.reason, standing.refused = standing.strikes + 1, reason, standing.refused + 1
        standing.aside = standing.strikes >= self.rules.strikes
        return standing.aside

    def admit(self, identity: str) -> None:
        """Let a silo that was set aside take part again."""
        standing = self.standing(identity)
        standing.strikes, standing.aside = 0, False

    def out(self) -> dict[str, str]:
        """Return the silos that train no more, and why."""
        return {who: standing.reason or "" for who, standing in self.standings.items() if standing.out}

    def begin_anew(self, identity: str) -> None:
        """Let a silo that has lost its memory begin anew from what it is sent; what it needs not remember, it has not
        lost.
        """
        if identity not in self.order or not self.method.remembers:
            return
        self.standing(identity).anew = True
        if self.method.changes:
            self._all_anew()

    def remove(self, identity: str) -> None:
        """Take a silo out, for good: its row leaves all mixtures, and its replies no longer measure those of others."""
        self.standings[identity] = Standing(removed=True)
        if identity not in self.order:
            return
        stay = [i for i, who in enumerate(self.order) if who != identity]
        self.order = [self.order[i] for i in stay]
        assert self.method_state is not None, "who has a row has joined"
        self.method_state = self.method.server_leave(self.method_state, torch.tensor(stay)) if stay else None
        if self.method.changes:
            self._all_anew()

    def _all_anew(self) -> None:
        """Let all silos begin anew: one silo's changes can't be told from the sum of everyone's.

        Their next changes are as large as first ones: earlier ones are no measure.
        """
        if self.method_state is not None:
            self.method_state = self.method.server_anew(self.method_state)
        for who in self.order:
            standing = self.standing(who)
            standing.accepted, standing.anew, standing.lengths = 0, True, {}

    def checkpoint(self, xi: Tensor | None, how: Mapping[str, Any]) -> Checkpoint:
        """Return all that is needed to continue after a stop."""
        assert self.method_state is not None, "no silo has joined"
        standings = {who: vars(standing) for who, standing in self.standings.items()}
        return Checkpoint(self.k, self.method_state, State(0), xi, {"order": self.order, "standings": standings, **how})

    def restore(self, saved: Checkpoint) -> None:
        """Continue from a checkpoint."""
        self.k, self.method_state, self.order = saved.k, saved.server, list(saved.how["order"])
        self.standings = {who: Standing(**values) for who, values in saved.how["standings"].items()}
