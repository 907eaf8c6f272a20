"""Nothing bad gets in: a reply must look as it should, before it is compared with the others (`replies`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedamp.federation.wire.encoding import RefusedError, one_line
from fedamp.methods import Method
from fedamp.rows import Message, Rows
from fedamp.runs.replies import outliers as outliers  # all that a federation checks is found here

MOST_SAMPLES = 1 << 40


@dataclass(frozen=True)
class Idle:
    """A local training of no steps: shows what a method's messages look like, whatever they hold."""

    lr: float = 1.0
    sizes: Tensor = field(default_factory=lambda: torch.ones((1, 1)))
    steps: Tensor = field(default_factory=lambda: torch.ones((1, 1)))

    def run(self, start: Any, direction: Any, **context: Tensor) -> Any:
        """Return where it started."""
        return start


def templates(method: Method, w: Rows) -> tuple[Message, Message]:
    """Return a message and a reply of this method as they should be, for a first model `(1, d)`."""
    _, message = method.server_send(method.server_init(w), 1)
    _, reply = method.client_update(method.client_init(w), message, Idle())
    return message, reply


def check_samples(told: object) -> int:
    """Return a sample count that can be one."""
    if isinstance(told, bool) or not isinstance(told, int | float) or not math.isfinite(told) or told != int(told):
        raise RefusedError(f"its sample count is {one_line(repr(told), 60)}; expected a whole number")
    if not 1 <= told <= MOST_SAMPLES:
        raise RefusedError(f"its sample count is {int(told)}; expected 1 or more, and at most {MOST_SAMPLES}")
    return int(told)


def check_count_entry(reply: Message, samples: int) -> None:
    """Raise where a reply's own sample count, which weighs it, is not the one that was checked."""
    if "samples" in reply and float(reply["samples"].params) != samples:
        raise RefusedError(f"it weighs itself with {float(reply['samples'].params):g} samples and tells {samples}")


def check_metrics(told: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, float]:
    """Return the metrics, each a number with a known name, within the limits of its kind.

    An error or a loss may be infinite or nan, as a model may be; an accuracy is a share of the samples.
    """
    unknown = sorted(set(told) - set(allowed))
    if unknown:
        raise RefusedError(f"it tells {one_line(', '.join(unknown), 80)}; expected only the metrics that are agreed on")
    for name, value in told.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RefusedError(f"its metric {name} is of type {type(value).__name__}; expected a number")
        if name.endswith("accuracy") and not 0 <= value <= 1:
            raise RefusedError(f"its metric {name} is {value:g}; expected a share, from 0 to 1")
        if value < 0 or (value > LARGEST and math.isfinite(value)):
            raise RefusedError(f"its metric {name} is {value:g}; expected 0 or more, and at most {LARGEST:g}")
    return {name: float(value) for name, value in told.items()}


LARGEST = 1e12


def check_variances(reply: Message, variances: Tensor | None) -> None:
    """Raise where a variance that a model carries along is negative: its root would be nan for all who mix it in.

    `variances` is a mask over a model's buffers `(b,)`.
    """
    if variances is None or not variances.any():
        return
    for name, rows in reply.items():
        if rows.buffers.shape[1] == len(variances) and bool((rows.buffers[0][variances] < 0).any()):
            raise RefusedError(f"{name}.buffers has a negative variance; expected 0 or more")
