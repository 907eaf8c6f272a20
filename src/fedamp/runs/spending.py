"""What a run's rounds have spent of its clients' privacy: counted from what was done, not from what was planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedamp.privacy import account
from fedamp.privacy.events import Spending
from fedamp.records.client_names import client_name
from fedamp.records.facts import Facts
from fedamp.records.privacy import EPSILON, SPENT, Promised, as_steps, spent_in
from fedamp.records.summaries import Line, finite


@dataclass(frozen=True)
class Spent:
    """What was promised, the steps that each client has taken so far, and the epsilons that these come to."""

    promised: Promised | None = None
    names: Sequence[str] | None = None
    steps: tuple[Spending, ...] = ()
    epsilons: tuple[float, ...] | None = None  # None where no library counts

    @classmethod
    def until(cls, lines: Sequence[Line], facts: Facts, num_clients: int) -> Spent:
        """Return what the rounds of these lines have spent: a run that goes on after a stop counts on from there."""
        if facts.privacy is None:
            return cls()
        return cls(Promised.of(facts.privacy), facts.names, tuple(spent_in(lines, num_clients)))

    def after(self, spent: Sequence[Spending] | None) -> Spent:
        """Return what was spent after one more round, by what it spent."""
        if self.promised is None:
            return self
        new = tuple(mine + more for mine, more in zip(self.steps, spent or [Counter()] * len(self.steps), strict=True))
        if not account.available():
            return replace(self, steps=new)
        return replace(self, steps=new, epsilons=tuple(account.epsilon(each, self.promised.delta) for each in new))

    def line(self, spent: Sequence[Spending] | None) -> Line:
        """Return what the line of a round says about it, of which `spent` is its own part."""
        if self.promised is None:
            return {}
        steps = {SPENT: [as_steps(each) for each in spent or [Counter()] * len(self.steps)]}
        return steps if self.epsilons is None else {EPSILON: finite(list(self.epsilons)), **steps}

    @property
    def events(self) -> list[str]:
        """A warning for each client that has spent more than was asked for."""
        if self.promised is None or self.promised.epsilon is None or self.epsilons is None:
            return []
        asked = self.promised.epsilon
        return [
            f"{client_name(i, self.names)} has spent more than epsilon {asked:g}: it took more steps than planned. Its "
            "replies were refused, so that it had to begin again, or the method's steps are not the same in every run. "
            "What it has spent stands in the record; for the next run give a smaller --dp-epsilon"
            for i, spent in enumerate(self.epsilons)
            if spent > asked * (1 + 1e-9)
        ]
