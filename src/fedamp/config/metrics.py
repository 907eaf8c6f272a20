"""What a metric is: its name, its words, its unit, which way is better, what it fits. Needs neither torch nor numpy.

How a metric is computed is in `training.metrics`; how scores of clients become a summary is in `records.summaries`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fedamp import checks
from fedamp.errors import UserError

CLASSIFICATION, REGRESSION = "classification", "regression"

AUTO = {CLASSIFICATION: "accuracy", REGRESSION: "rmse"}
"""What `auto` means, by the task."""

PERCENT = "%"
NOT_FINITE = "not finite"
"""What is shown in place of a score that is not finite: the models have diverged."""
UNDEFINED = "undefined"
"""What is shown in place of a score that a client's test samples do not define, such as an AUC of one class."""

SIGN, PARTS, RANKS = "sign", "parts", "ranks"
"""How two models are compared: who is better on more samples; by the sums of samples' parts; the same, of ranks."""

OWN = "own"
"""The first word of the recorded name of a user's own metric."""


@dataclass(frozen=True)
class MetricInfo:
    """One metric. Records hold a score as it is computed; people see one with the unit % as 100 times that."""

    name: str  # in a configuration, and as the key of scores in the records
    words: str  # in a sentence: "best mean test accuracy"
    short: str  # beside a number: "RMSE 0.51"
    unit: str  # "%"; or "" for a number without one, or one in the target's unit
    higher_is_better: bool
    tasks: tuple[str, ...] = (CLASSIFICATION, REGRESSION)
    by_positive: bool = False  # of two classes, it depends on which one is the positive one
    shares: bool = False  # it lies between 0 and 1
    power: int = 1  # scores to this power, averaged by samples, give the score of all samples together, if `pools`
    pools: bool = True  # whether the score of all samples together follows from the clients' scores
    paired: str = SIGN  # how two models of a client are compared by single samples: see `records.beside_alone`

    @property
    def factor(self) -> int:
        """What a recorded score is multiplied with to be shown."""
        return 100 if self.unit == PERCENT else 1

    @property
    def label(self) -> str:
        """What an axis or a column is called."""
        unit = f", {self.unit}" if self.unit else ""
        return f"{self.short}{unit}" if self.higher_is_better else f"{self.short}{unit} (lower is better)"

    @property
    def best_mean(self) -> str:
        """What the best of a round's means over the clients is called."""
        return f"best mean test {self.words}" if self.higher_is_better else f"lowest mean test {self.words}"

    def text(self, shown: float | None, digits: int = 2) -> str:
        """Return a score, as it is shown, in words; `digits` are those of a percentage.

        >>> info("accuracy").text(97.126), info("rmse").text(0.51239), info("auc").text(0.9), info("auc").text(None)
        ('97.13 %', '0.5124', '0.9000', 'undefined')
        """
        if shown is None or not math.isfinite(shown):
            # A model that is not finite has an AUC of 0: none at all has only who has no samples for one.
            return UNDEFINED if self.shares and not self.pools else NOT_FINITE
        if self.unit == PERCENT:
            return f"{shown:.{digits}f} %"
        number = f"{shown:.4f}" if self.shares else f"{shown:.4g}"
        return f"{number} {self.unit}" if self.unit else number

    def with_name(self, shown: float | None) -> str:
        """Return a score, as it is shown, after the metric's name: where several stand side by side."""
        return f"{self.short} {self.text(shown)}"

    def named(self, shown: float | None, digits: int = 2) -> str:
        """Return the same with the metric's name, unless an accuracy or "not finite" speaks for itself.

        >>> info("accuracy").named(97.126, 1), info("rmse").named(0.51239), info("auc").named(0.9)
        ('97.1 %', 'RMSE 0.5124', 'AUC 0.9000')
        """
        text = self.text(shown, digits)
        return text if self.name == "accuracy" or text in (NOT_FINITE, UNDEFINED) else f"{self.short} {text}"


_CLASSES, _NUMBERS = (CLASSIFICATION,), (REGRESSION,)
METRICS: dict[str, MetricInfo] = {
    each.name: each
    for each in (
        MetricInfo("accuracy", "accuracy", "accuracy", PERCENT, True, _CLASSES, shares=True),
        replace(
            MetricInfo("balanced-accuracy", "balanced accuracy", "balanced accuracy", PERCENT, True, _CLASSES),
            shares=True,
            pools=False,
            paired=PARTS,
        ),
        MetricInfo("f1", "F1", "F1", "", True, _CLASSES, by_positive=True, shares=True, pools=False, paired=PARTS),
        MetricInfo(
            "auc", "ROC AUC", "AUC", "", True, _CLASSES, by_positive=True, shares=True, pools=False, paired=RANKS
        ),
        replace(
            MetricInfo("average-precision", "average precision", "average precision", "", True, _CLASSES),
            by_positive=True,
            shares=True,
            pools=False,
            paired=RANKS,
        ),
        MetricInfo("log-loss", "log loss", "log loss", "", False, _CLASSES, paired=PARTS),
        MetricInfo("rmse", "error (RMSE)", "RMSE", "", False, _NUMBERS, power=2),
        MetricInfo("mae", "absolute error (MAE)", "MAE", "", False, _NUMBERS),
        MetricInfo("r2", "R2", "R2", "", True, _NUMBERS, pools=False),
    )
}


def info(name: str) -> MetricInfo:
    """Return what is known of a metric by its name in a record; a user's own says in its name which way is better.

    >>> info("own:lower:cost:EUR").label, info("own:higher:sensitivity:%").factor
    ('cost, EUR (lower is better)', 100)
    """
    if name in METRICS:
        return METRICS[name]
    kind, _, rest = name.partition(":")
    direction, _, rest = rest.partition(":")
    words, _, unit = rest.partition(":")
    if kind == OWN and direction in ("higher", "lower") and words:
        return MetricInfo(name, words, words, unit, direction == "higher", pools=False, paired=PARTS)
    raise UserError(
        f"metric is {name!r}; choose from {', '.join(sorted(METRICS))}, or from Python give a fedamp.Metric"
    )


def own_name(name: str, higher_is_better: bool, unit: str = "") -> str:
    """Return the name under which a user's own metric is recorded: `info` reads from it what it needs to know.

    >>> own_name("cost", False, "EUR")
    'own:lower:cost:EUR'
    """
    ending = f":{unit}" if unit else ""
    return f"{OWN}:{'higher' if higher_is_better else 'lower'}:{name}{ending}"


def metric_name(asked: str, task: str) -> str:
    """Return the metric that a run of this task is judged by; one that does not fit the task is an error."""
    if asked == "auto":
        return AUTO[task]
    if not asked.startswith(f"{OWN}:"):
        checks.one_of("metric", asked, METRICS)
    if task not in info(asked).tasks:
        raise UserError(f"metric is {asked!r}, but the task is a {task}; choose from {', '.join(usual_metrics(task))}")
    return asked


def usual_metrics(task: str) -> list[str]:
    """Return the names of the metrics that fit a task."""
    return [each.name for each in METRICS.values() if task in each.tasks]


@dataclass(frozen=True)
class Metric:
    """A metric of your own, for `fedamp.run(metric=...)`: a function of all of a client's outputs and targets.

    `function` gets tensors on the CPU: class scores (logits) `(N, k)` and class numbers `(N,)`, or for a regression
    predictions `(N, 1)` and targets `(N,)` in the target's own unit. It returns a number, or nan if a client's samples
    do not define one: such a client enters no mean. With the unit "%" a score of 0.9 is shown as 90 %.
    """

    name: str
    function: Callable[[Any, Any], Any]
    higher_is_better: bool = True
    unit: str = ""

    def __post_init__(self) -> None:
        words = isinstance(self.name, str) and self.name.replace("-", "").replace("_", "").replace(" ", "").isalnum()
        if not words or self.name in (*METRICS, "auto"):
            raise UserError(
                f"the name of a metric is {self.name!r}; expected letters, digits and hyphens, and no known name"
            )
        if not callable(self.function):
            raise UserError(f"the metric {self.name} is {self.function!r}; expected a function of outputs and targets")
        checks.truth(f"higher_is_better of the metric {self.name}", self.higher_is_better)
        if not isinstance(self.unit, str) or ":" in self.unit:
            raise UserError(f"the unit of the metric {self.name} is {self.unit!r}; expected a short text, such as EUR")

    @property
    def recorded(self) -> str:
        """The name under which its scores are recorded."""
        return own_name(self.name, self.higher_is_better, self.unit)

    def score(self, outputs: Any, targets: Any) -> float:
        """Return the score; what is not a number is a user's mistake."""
        try:
            return float(self.function(outputs, targets))
        except Exception as error:  # whatever a user's function may do
            why = " ".join(str(error).split())[:200] or type(error).__name__
            shapes = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}"
            raise UserError(
                f"the metric {self.name} fails on {shapes}: {why}; expected it to return a number"
            ) from None
