"""What a silo's operator wishes about privacy: the flags of `fedamp silo up` and `silo check`, and which make sense."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fedamp import checks
from fedamp.config.run_config import check_clip
from fedamp.errors import UserError
from fedamp.federation.silo.privacy_account import Before

NUMBER = r"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"
STATED = re.compile(rf"({NUMBER})(?:,({NUMBER}))?")  # EPSILON or EPSILON,DELTA


@dataclass(frozen=True)
class Wishes:
    """The flags of `silo up`; None for what was not given: then a ledger's own stays as it is."""

    epsilon: float | None = None  # the most that may be spent in all
    delta: float | None = None
    clip: float | None = None
    noise: float | None = None  # instead of one that is found for the planned rounds
    rounds: int | None = None  # to find the noise for; by default those of the plan
    spent: str | None = None  # before the ledger began: EPSILON, or EPSILON,DELTA
    unprotected: bool = False  # consent to what leaves unprotected, though a ledger promises otherwise

    def __post_init__(self) -> None:
        for name in ("epsilon", "noise"):
            if getattr(self, name) is not None:
                checks.positive(f"--dp-{name}", getattr(self, name))
        if self.clip is not None:
            check_clip("--dp-clip", self.clip)
        if self.delta is not None and not 0 < self.delta < 1:
            raise UserError(f"--dp-delta is {self.delta}; expected a number between 0 and 1, well below 1 / samples")
        if self.rounds is not None:
            checks.count("--dp-rounds", self.rounds)
        others = {"delta": self.delta, "clip": self.clip, "rounds": self.rounds, "spent": self.spent}
        if not self.private and (given := [f"--dp-{name}" for name, value in others.items() if value is not None]):
            raise UserError(
                f"{' and '.join(given)} without --dp-epsilon or --dp-noise: nothing is protected; give one of them"
            )
        if self.private and self.unprotected:
            raise UserError("--unprotected contradicts --dp-epsilon and --dp-noise; give the one or the other")
        if self.rounds is not None and self.noise is not None:
            raise UserError("--dp-rounds is to find the noise, and --dp-noise gives it; leave one of them out")

    @property
    def private(self) -> bool:
        """Whether samples are to be protected."""
        return self.epsilon is not None or self.noise is not None

    def before(self, delta: float) -> Before | None:
        """Return what was spent before, as stated; at this delta if only an epsilon is given."""
        if self.spent is None:
            return None
        match = STATED.fullmatch(self.spent)
        epsilon, stated = (float(match[1]), match[2]) if match else (math.nan, None)
        delta = float(stated) if stated else delta if epsilon else 0.0
        if not (0 <= epsilon < math.inf and 0 <= delta < 1):
            raise UserError(
                f"--dp-spent is {self.spent!r}; expected the epsilon that these samples have spent, say 1.5, or with "
                "its delta 1.5,1e-5; 0 if they were never used"
            )
        return Before(epsilon, delta)


NO_WISHES = Wishes()
