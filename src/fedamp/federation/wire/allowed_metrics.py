"""Which numbers a silo may send with its reply: nothing else is accepted, and nothing else leaves the silo."""

from collections.abc import Mapping

from fedamp.records.take_home import ENTRIES

DATA_CHANGED = "data-changed"
"""The round in which a silo's data was last found changed; not sent by a silo whose data has not."""
NOT_PROTECTED = ("num-examples", "train-seconds", "forgot")
"""All that a silo sends besides its reply if it protects its samples: what its promise names as not covered."""
LOSSES = ("train-loss", "train-loss-w", "train-loss-v")


def withholds(metrics: Mapping[str, float]) -> bool:
    """Return whether a silo keeps its scores at home: any other tells on how many samples they are."""
    return "num-test" not in metrics


def metric_names(metric: str) -> list[str]:
    """Return every metric that a silo may report."""
    scores = [
        f"{first}{on}.{entry}.{what}"
        for first in ("", "first.")
        for on in ("test", "validation")
        for entry in ENTRIES
        for what in (metric, "loss")
    ]
    more = [DATA_CHANGED, "forgot"]
    return ["num-examples", "num-test", "num-validation", "train-seconds", *more, *LOSSES, *scores]
