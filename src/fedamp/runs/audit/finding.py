"""What an audit has found, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Audit:
    """What an audit has found."""

    client: str
    method: str
    rounds: int
    claimed: float | None  # epsilon by the account, or the one that was given; None: nothing is promised
    delta: float
    bound: float  # the larger of the two
    bound_of_any: float  # whatever the mechanism is: Steinke et al.
    bound_of_gaussian: float | None  # for steps like the claimed ones, with other noise: Mahloujifar et al.
    reach: float | None  # the bound if every guess had been right; None where nothing is claimed
    canaries: int
    inside: int
    guesses: int
    right: int
    area: float  # under the attack's curve: 0.5 knows nothing, 1 everything
    confidence: float
    repeats: int
    leaves: bool  # whether a model leaves the client at all; if none does, the audit is of what stays

    @property
    def broken(self) -> bool:
        """Whether more has leaked than was claimed."""
        return self.claimed is not None and self.bound > self.claimed

    @property
    def blunt(self) -> bool:
        """Whether not even an attacker who knows every coin could refute the claim by so few guesses."""
        return self.claimed is not None and self.reach is not None and self.reach <= self.claimed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which knows no infinity."""
        values = {**asdict(self), "broken": self.broken, "blunt": self.blunt}
        return {k: "inf" if v == math.inf else None if v != v else v for k, v in values.items()}

    def in_words(self) -> list[str]:
        """Return what was found, a line each; the last one is the verdict."""
        sure, at = f"{self.confidence:.0%} sure", f"at delta {self.delta:g}"
        claim = "nothing is promised" if self.claimed is None else f"epsilon {self.claimed:.2f} {at}"
        gaussian = "" if self.bound_of_gaussian is None else f"; noise like the claimed: {self.bound_of_gaussian:.2f}"
        lines = [
            f"audit of {self.client}: {self.method}, {self.rounds} rounds, {self.canaries} canaries, {self.inside} in"
            + (f", in {self.repeats} repeats" if self.repeats > 1 else ""),
            f"  claimed      {claim}",
            f"  lower bound  epsilon {self.bound:.2f} {at}, {sure} (any mechanism: {self.bound_of_any:.2f}{gaussian})",
            f"  guesses      {self.right} of {self.guesses} right, area under the curve {self.area:.3f}",
        ]
        if not self.leaves:
            lines.append(
                "  With this method no model leaves a client: attacked was the one that stays, after each round."
            )
        if self.claimed is None:
            return [*lines, f"Nothing is promised, and at least epsilon {self.bound:.2f} leaks."]
        if self.broken:
            return [
                *lines,
                f"The promise is BROKEN: epsilon {self.claimed:.2f} is claimed, and at least {self.bound:.2f} leaks "
                f"({sure}). Do not let this silo's models leave.",
            ]
        if self.blunt:
            return [
                *lines,
                f"This says nothing about the claim: if all {self.guesses} guesses had been right, the bound would be "
                f"{self.reach:.2f}, and {self.claimed:.2f} is claimed. Take more canaries (--canaries), or repeat it "
                "(--repeats).",
            ]
        return [*lines, "No leak beyond the claim was found. That is no proof that there is none: the account is."]
