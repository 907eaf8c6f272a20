"""One metric of a stack of models, over clients and over all samples together: a line of `metrics` in result.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedamp.records.summaries import finite


@dataclass(frozen=True)
class Scored:
    """One metric of one stack of models, as people see it: shares with the unit % in percent. nan is undefined."""

    per_client: list[float]
    mean: float  # over the counted clients that have a score
    pooled: float  # on the test samples of all counted clients together

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Scored:
        """Return what `to_dict` gave."""
        numbers = [math.nan if score is None else score for score in values["per_client"]]
        mean, pooled = (math.nan if values[name] is None else values[name] for name in ("mean", "pooled"))
        return cls(numbers, mean, pooled)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; None for what is not defined or not finite."""
        values: dict[str, Any] = finite(asdict(self))
        return values
