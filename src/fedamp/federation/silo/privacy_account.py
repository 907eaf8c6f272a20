"""What a silo has promised about its samples, and what was spent of it: the content of run/privacy.json.

Spent is epsilon0 + epsilon(events) at delta0 + delta: what the operator stated as spent before, and the events of all
rounds that may have left since (basic composition: Dwork and Roth, 2014, theorem 3.16).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedamp.privacy.events import Event, Spending

ALIKE = 3
"""Rounds that have to cost the same for the next one to be expected to."""
MOST_ROUNDS = 10_000
"""Rounds that are counted as left, at most."""


@dataclass(frozen=True)
class Promise:
    """What the samples are promised, and how it is kept."""

    limit: float | None  # epsilon: the most that may be spent, with what was spent before; None: it is only counted
    delta: float  # of the events; what was spent before has its own beside it
    clip: float  # C: the longest that the gradient of one sample may be
    noise: float  # z: the noise's standard deviation is z C
    rounds: int | None = None  # that the noise was found for; None: it was given


@dataclass(frozen=True)
class Before:
    """What the operator stated as spent by these samples before this account began."""

    epsilon: float = 0.0
    delta: float = 0.0


@dataclass(frozen=True)
class SpentRound:
    """A round that may have left the silo; one that is played again is another."""

    round: int
    time: str
    spending: Spending
    epsilon: float | None  # of all so far, this one included; None: there was nobody to compute it
    asked: str | None = None  # digest of the server's message
    reply: str | None = None  # digest of the answer: the same message again gets the same answer, and costs nothing


@dataclass(frozen=True)
class Account:
    """The promise, what was spent before, and every round since."""

    promise: Promise
    before: Before = Before()
    expected: Spending = field(default_factory=Counter)  # of the first round, by rehearsal
    rounds: tuple[SpentRound, ...] = ()
    changes: tuple[Mapping[str, str], ...] = ()  # what the operator changed, and when
    unfitting: Spending | None = None  # what a round would have cost for which nothing was left; it did not leave
    spent: float | None = 0.0  # epsilon when this was written; None: there was nobody to compute it
    unprotected: str | None = None  # since when replies have left without any protection, by the operator's consent
    counted: int = 0  # rounds that run/ledger.json had counted when this account began
    accepted: int | None = None  # the round that the server had taken when it first asked since; None: not asked yet

    @property
    def spending(self) -> Spending:
        """The events of all rounds."""
        total: Spending = Counter()
        for each in self.rounds:
            total.update(each.spending)
        return total

    @property
    def next_round(self) -> Spending:
        """What the next round is going to cost, as far as it is known before it is trained.

        As much as the one that did not fit; as the last ones, if they were all alike; as the rehearsal of the first
        one says. Rounds of some methods differ: then nothing is known, and what a round has cost decides.
        """
        if self.unfitting is not None:
            return self.unfitting
        if not self.rounds:
            return self.expected
        last = [each.spending for each in self.rounds[-ALIKE:]]
        return last[0] if len(last) == ALIKE and all(each == last[0] for each in last) else Counter()

    def rounds_left(self) -> int | None:
        """Return how many more rounds fit into the promise, up to `MOST_ROUNDS`; None: it has no limit, or none counts.

        Each like the next one, or like the last one where what the next one costs is not known.
        """
        from fedamp.privacy.account import available

        each = self.next_round or (self.rounds[-1].spending if self.rounds else self.expected)
        limit = self.promise.limit
        if limit is None or self.unprotected is not None or not each or not available():
            return None
        cost = {event: steps for event, steps in each.items() if steps}

        def too_many(n: int) -> bool:
            return self.epsilon(Counter({event: n * steps for event, steps in cost.items()})) > limit

        fit, beyond = 0, 1  # never far beyond: the library does not count what is far too much
        while beyond <= MOST_ROUNDS and not too_many(beyond):
            fit, beyond = beyond, 2 * beyond
        return fit + bisect_left(range(fit + 1, min(beyond, MOST_ROUNDS + 1)), True, key=too_many)

    @property
    def delta(self) -> float:
        """The delta of all that is spent."""
        return self.before.delta + self.promise.delta

    def epsilon(self, more: Spending | None = None) -> float:
        """Return the epsilon that is spent at `delta`, and `more` on top of it."""
        spending = self.spending
        spending.update(more or {})
        if not spending:
            return self.before.epsilon
        from fedamp.privacy.account import epsilon

        return self.before.epsilon + epsilon(spending, self.promise.delta)

    def epsilon_if_known(self, more: Spending | None = None) -> float | None:
        """Return the same, or None if the library that computes it is not installed."""
        from fedamp.privacy.account import available

        return self.epsilon(more) if available() else None

    def with_promise(self, promise: Promise, when: str) -> Account:
        """Return the account with another promise; what differs is noted. Nothing that was spent changes."""
        old, new = asdict(self.promise), asdict(promise)
        changed = [f"{name} {_shown(old[name])} -> {_shown(new[name])}" for name in new if new[name] != old[name]]
        return self.noting(when, ", ".join(changed), promise=promise, unfitting=None) if changed else self

    def noting(self, when: str, what: str, **changes: Any) -> Account:
        """Return the account with these changes, and a line about them."""
        return replace(self, **changes, changes=(*self.changes, {"time": when, "what": what}))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as the file has them."""
        rounds = [{**vars(each), "spending": _plain(each.spending)} for each in self.rounds]
        return {
            "promise": asdict(self.promise),
            "before": asdict(self.before),
            "expected": _plain(self.expected),
            "rounds": rounds,
            "changes": [dict(change) for change in self.changes],
            "unfitting": None if self.unfitting is None else _plain(self.unfitting),
            "spent": self.spent,
            "unprotected": self.unprotected,
            "counted": self.counted,
            "accepted": self.accepted,
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Account:
        """Return what `to_dict` gave."""
        return cls(
            promise=Promise(**values["promise"]),
            before=Before(**values["before"]),
            expected=_spending(values["expected"]),
            rounds=tuple(SpentRound(**{**each, "spending": _spending(each["spending"])}) for each in values["rounds"]),
            changes=tuple(values["changes"]),
            unfitting=None if values["unfitting"] is None else _spending(values["unfitting"]),
            spent=values["spent"],
            unprotected=values["unprotected"],
            counted=int(values.get("counted", 0)),
            accepted=values.get("accepted"),
        )


def _plain(spending: Spending) -> list[dict[str, float]]:
    return [{"rate": event.rate, "noise": event.noise, "steps": steps} for event, steps in spending.items()]


def _spending(values: Sequence[Mapping[str, Any]]) -> Spending:
    found: Spending = Counter()
    for each in values:
        found[Event(float(each["rate"]), float(each["noise"]))] += int(each["steps"])
    check_steps(found)
    return found


def check_steps(spending: Spending) -> None:
    """Raise if there can be no such steps: whatever asked for them, nothing made by them may leave."""
    for event, steps in spending.items():
        if not (0 <= event.rate <= 1 and event.noise >= 0 and steps >= 0):
            raise ValueError(f"no {steps} steps can have rate {event.rate} and noise {event.noise}")


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"
