"""A round as a callback sees it: a few typed facts of its line in the record."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedamp.config import RunConfig
from fedamp.config.metrics import info
from fedamp.records.summaries import higher_is_better, line_mean, recorded_score
from fedamp.records.take_home import THEN_ALONE
from fedamp.runs.setup import Setup


@dataclass(frozen=True)
class RoundLine:
    """What is known right after a round: accuracies in percent, errors in the target's unit; None if not known.

    The scores are those of the models that the method counts: `own`, after this round's local training, or
    `received`, which the server made of the round before.
    """

    round: int  # from 1
    rounds: int  # how many the run has
    metric: str  # see `fedamp.config.metrics`
    mean: float | None  # test score, the mean over the clients that take part and are not poisoned
    worst: float | None  # the worst of them
    per_client: list[float | None]  # None for a client that is absent in this round
    loss: float | None  # mean training loss
    seconds: float  # that the round took
    events: list[str]  # warnings that came up in it
    raw: Mapping[str, Any] = field(repr=False)  # the line itself, as in rounds.jsonl
    names: Sequence[str] | None = None  # of the clients, if they have names

    @classmethod
    def of(cls, line: Mapping[str, Any], rounds: int, scored: str, poisoned: Collection[int] = ()) -> RoundLine:
        """Return the view of a round's line in a record."""
        mean, metric = line_mean(line, scored, poisoned) or (None, "accuracy")
        factor = info(metric).factor
        scores = line["test"].get(scored, {}).get(metric, [])
        per_client = [None if value is None else factor * recorded_score(value, metric) for value in scores]
        counted = [value for i, value in enumerate(per_client) if value is not None and i not in poisoned]
        return cls(
            round=line["round"],
            rounds=rounds,
            metric=metric,
            mean=mean,
            worst=(min if higher_is_better(metric) else max)(counted, default=None),
            per_client=per_client,
            loss=_mean(line.get("train_loss") or []),
            seconds=line["seconds"],
            events=list(line["events"]),
            raw=line,
        )

    @property
    def in_words(self) -> str:
        """The round in a few words, for a line that updates."""
        score = "" if self.mean is None else f": {info(self.metric).with_name(self.mean)}"
        return f"round {self.round} of {self.rounds}{score}"


def is_played(line: Mapping[str, Any]) -> bool:
    """Whether a line is that of a round: the first models, and the last ones sent, have lines of their own."""
    return "present" in line


def is_alone(line: Mapping[str, Any]) -> bool:
    """Whether a line is that of a round that clients went on alone, after the last one."""
    return THEN_ALONE in line.get("test", {})


def viewed(line: Mapping[str, Any], config: RunConfig, setup: Setup) -> RoundLine:
    """Return the view of a line of this run."""
    return replace(RoundLine.of(line, config.rounds, setup.method.scored, config.poisoned), names=setup.facts.names)


def _mean(values: Collection[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
