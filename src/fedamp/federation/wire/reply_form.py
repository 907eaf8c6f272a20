"""What a reply must look like by itself, before it is compared with the others (`fedamp.runs.reply_checks`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedamp.config.metrics import METRICS
from fedamp.federation.wire.allowed_metrics import DATA_CHANGED
from fedamp.federation.wire.encoding import RefusedError, one_line
from fedamp.methods import Method
from fedamp.rows import Columns, Message, Rows

MOST_SAMPLES = 1 << 40


@dataclass(frozen=True)
class Idle:
    """A local training of no steps: shows what a method's messages look like, whatever they hold."""

    lr: float = 1.0
    epochs: int | None = None
    sizes: Tensor = field(default_factory=lambda: torch.ones((1, 1)))
    steps: Tensor = field(default_factory=lambda: torch.ones((1, 1)))

    def part(self, half: Tensor) -> Idle:
        """Return itself: there are no samples to choose from."""
        return self

    def held_out(self, share: float) -> tuple[Idle, Idle]:
        """Return itself twice."""
        return self, self

    def again(self, number: int = 1, **settings: Any) -> Idle:
        """Return itself: no pass does anything."""
        return self

    def head(self, layers: int = 1) -> Columns:
        """Return no columns, whatever the model: a mask of one entry stands for all of them."""
        return Columns(*(torch.zeros(1, dtype=torch.bool) for _ in range(2)))

    def norm(self) -> Columns:
        """Return no columns."""
        return self.head()

    def noise(self, of: str = "") -> Tensor:
        """Return no noise."""
        return torch.zeros((1, 1), dtype=torch.float64)

    def at_home(self) -> Idle:
        """Return itself: nothing is noised."""
        return self

    def loss(self, rows: Rows) -> Tensor:
        """Return a loss, though there are no samples."""
        return torch.zeros((len(rows), 1), dtype=torch.float64)

    def run(self, start: Any, direction: Any, **context: Tensor) -> Any:
        """Return where it started."""
        return start


def templates(method: Method, w: Rows) -> tuple[Message, Message]:
    """Return a valid message and a valid reply of this method, for a first model `(1, d)`."""
    _, message = method.server_send(method.server_init(w), 1)
    _, reply = method.client_update(method.client_init(w), message, Idle())
    return message, reply


def check_samples(count: object) -> int:
    """Return a sample count that is possible."""
    if isinstance(count, bool) or not isinstance(count, int | float) or not math.isfinite(count) or count != int(count):
        raise RefusedError(f"its sample count is {one_line(repr(count), 60)}; expected a whole number")
    if not 1 <= count <= MOST_SAMPLES:
        raise RefusedError(f"its sample count is {int(count)}; expected 1 to {MOST_SAMPLES}")
    return int(count)


def check_count_entry(reply: Message, samples: int) -> None:
    """Raise if a reply's own sample count, which weighs it, is not the one that was checked."""
    if "samples" in reply and float(reply["samples"].params) != samples:
        raise RefusedError(f"it weights itself by {float(reply['samples'].params):g} samples but reports {samples}")


def check_noise(reply: Message) -> None:
    """Raise if what a reply says of privacy's noise in its model is no variance."""
    if "noise" in reply and not 0 <= float(reply["noise"].params) < math.inf:
        raise RefusedError(f"its noise is {float(reply['noise'].params):g}; expected a variance, 0 or more")


def check_metrics(metrics: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, float]:
    """Return the metrics, each a number with a known name, within the limits of its kind.

    An error or a loss may be infinite or nan, as a model may be; an accuracy is a share of the samples, and an R2 may
    be negative.
    """
    unknown = sorted(set(metrics) - set(allowed))
    if unknown:
        raise RefusedError(f"it reports {one_line(', '.join(unknown), 80)}; expected only the agreed metrics")
    for name, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RefusedError(f"its metric {name} is of type {type(value).__name__}; expected a number")
        about = METRICS.get(name.rsplit(".", 1)[-1])
        if about is not None and about.shares and not 0 <= value <= 1:
            raise RefusedError(f"its metric {name} is {value:g}; expected a number from 0 to 1")
        if name == DATA_CHANGED and not float(value).is_integer():
            raise RefusedError(f"its metric {name} is {value:g}; expected a round's number")
        least = -LARGEST if about is not None and about.name == "r2" else 0
        if ((value < least or value > LARGEST) and math.isfinite(value)) or (value < 0 and least == 0):
            raise RefusedError(f"its metric {name} is {value:g}; expected {least:g} to {LARGEST:g}")
    return {name: float(value) for name, value in metrics.items()}


LARGEST = 1e12


def check_variances(reply: Message, variances: Tensor | None) -> None:
    """Raise if a variance in a model's buffers is negative: its root would be nan for all who mix it in.

    `variances` is a mask over a model's buffers `(b,)`.
    """
    if variances is None or not variances.any():
        return
    for name, rows in reply.items():
        if rows.buffers.shape[1] == len(variances) and bool((rows.buffers[0][variances] < 0).any()):
            raise RefusedError(f"{name}.buffers has a negative variance; expected 0 or more")
