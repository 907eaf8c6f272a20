"""What a run promised to its clients' samples and what its rounds have spent of it, as the record holds both."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from fedamp.privacy.events import Event, Spending
from fedamp.records.client_names import client_name

EPSILON, SPENT = "epsilon", "spent"
"""In a round's line: what all rounds so far come to, by client; and the steps of this round that it is computed from,
by client: rate, noise and number of each kind. An epsilon of None is infinite, which JSON has no word for; where no
library has counted, there is none at all."""
LISTED = 8
"""Clients whose epsilons are listed, if they differ."""
PROTECTS_NOBODY = (
    "A simulation protects nobody: all data are on this machine, and the noise follows from the seed. It shows what "
    "privacy would cost; in a federation each silo promises for itself (fedamp silo up --dp-epsilon)."
)


@dataclass(frozen=True)
class Promised:
    """How samples are protected, and what that may come to; lists have an entry for each client, in their order."""

    clip: float  # the longest that the gradient of one sample may be
    delta: float
    epsilon: float | None  # as asked for, for all rounds; None if the noise was given instead
    noise: list[float]  # standard deviation, in units of the clip
    rates: list[float]  # the chance of a sample to be in a minibatch
    relation: str  # of neighbouring data sets: "add-or-remove" one sample
    sampling: str  # "poisson": each sample by itself
    accountant: str | None  # which library counted; None if there is none, and so no epsilon

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Promised:
        """Return what `to_dict` gave; what another version wrote in addition is ignored."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @property
    def plan(self) -> str:
        """How it is done, in words: noise and chances."""
        asked = "noise as given" if self.epsilon is None else f"epsilon {self.epsilon:g} at delta {self.delta:g}"
        return (
            f"{asked}: noise {_range(self.noise)} times the clip of {self.clip:g}, each sample in a minibatch with a "
            f"chance of {_range(self.rates)}"
        )

    def words(self, spent: Sequence[float | None] | None, names: Sequence[str] | None = None) -> str:
        """Return what was spent in a sentence, by client where it is not the same for all."""
        if not spent:
            return f"epsilon is not known: no library has counted it ({self.plan})"
        values = [math.inf if each is None else each for each in spent]
        texts = [rounded_up(each) for each in values]
        least, most = (texts[values.index(pick(values))] for pick in (min, max))
        if least == most:
            return f"epsilon {most} at delta {self.delta:g} for every client's single samples (add or remove one)"
        who = ", ".join(f"{client_name(i, names)} {text}" for i, text in enumerate(texts))
        if len(values) > LISTED:
            who = f"the most by {client_name(values.index(max(values)), names)}"
        at = f"at delta {self.delta:g} for clients' single samples (add or remove one)"
        return f"epsilon {least} to {most} {at}: {who}"


def rounded_up(epsilon: float | None) -> str:
    """Return an epsilon with three digits, never less than it is.

    >>> rounded_up(3.9911), rounded_up(0.031201), rounded_up(4), rounded_up(0), rounded_up(12862), rounded_up(math.inf)
    ('4.00', '0.0313', '4.00', '0', '12,862', 'infinite')
    """
    if epsilon is None or math.isinf(epsilon):
        return "infinite"
    if epsilon == 0:
        return "0"
    if epsilon >= 100:
        return f"{math.ceil(epsilon):,}"
    digits = 2 - math.floor(math.log10(epsilon))
    return f"{math.ceil(epsilon * 10**digits - 1e-9) / 10**digits:#.3g}"


def epsilon_now(lines: Sequence[Mapping[str, Any]]) -> list[float | None] | None:
    """Return what all rounds came to, by client: that of the last line that says so."""
    return next((line[EPSILON] for line in reversed(lines) if EPSILON in line), None)


def spent_in(lines: Sequence[Mapping[str, Any]], num_clients: int) -> list[Spending]:
    """Return the steps that each client has taken in all of these rounds."""
    spent: list[Spending] = [Counter() for _ in range(num_clients)]
    for line in lines:
        for mine, steps in zip(spent, line.get(SPENT, []), strict=False):
            for rate, noise, count in steps:
                mine[Event(rate, noise)] += count
    return spent


def as_steps(spent: Spending) -> list[list[float]]:
    """Return the steps of a client as a line has them."""
    return [[event.rate, event.noise, count] for event, count in sorted(spent.items())]


def _range(values: Sequence[float]) -> str:
    least, most = (f"{pick(values):.3g}" for pick in (min, max))
    return least if least == most else f"{least} to {most}"
