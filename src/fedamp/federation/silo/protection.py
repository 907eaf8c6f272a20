"""What a silo's operator wishes about privacy (`fedamp silo up --dp-...`), and how the ledger comes to promise it.

It is settled once, when `silo up` starts, and only here is a ledger begun: a process that trains keeps what it finds,
and waits if it finds nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.federation.plan import SiloConfig
from fedamp.federation.silo.ledger import LEDGER as ROUNDS_LEDGER
from fedamp.federation.silo.ledger import Ledger
from fedamp.federation.silo.memory import Memory
from fedamp.federation.silo.planned_noise import advice, noise_for, planned
from fedamp.federation.silo.privacy_account import Account, Before, Promise
from fedamp.federation.silo.privacy_ledger import CURE, PrivacyLedger
from fedamp.federation.silo.privacy_words import spent_text
from fedamp.federation.silo.round import MEMORY, open_silo
from fedamp.privacy import account

Say = Callable[[str], None]
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
        for name in ("epsilon", "clip", "noise"):
            if getattr(self, name) is not None:
                checks.positive(f"--dp-{name}", getattr(self, name))
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


def settle(silo_config: SiloConfig, folder: Path, data: Path, wishes: Wishes, say: Say) -> bool:
    """Bring the ledger in line with the wishes, and return whether samples are protected; refuse what contradicts."""
    ledger = PrivacyLedger(folder)
    found = ledger.read()
    if not wishes.private:
        return _without(ledger, found, wishes, say)
    if found is None:
        _begin(silo_config, ledger, data, wishes, say)
    else:
        _go_on(ledger, found, wishes, say)
    settled = ledger.account()
    how = f"noise {settled.promise.noise:.4g}, clip {settled.promise.clip:g}"
    say(f"samples are protected ({how}); {spent_text(settled)}")
    return True


def _without(ledger: PrivacyLedger, found: Account | None, wishes: Wishes, say: Say) -> bool:
    """Let a silo go on without protection, if nothing was promised, or its operator gives up what was."""
    if found is None:
        return False
    if found.unprotected is None and not wishes.unprotected:
        limit = found.promise.limit
        flag = f"--dp-noise {found.promise.noise:g}" if limit is None else f"--dp-epsilon {limit:g}"
        raise UserError(
            f"{ledger.path} promises privacy, which what leaves now would not have; keep the promise with {flag}, or "
            "give it up for good with --unprotected"
        )
    ledger.give_up()
    say(f"warning: what leaves is not protected; {ledger.path} says so, and since when")
    return False


def _begin(silo_config: SiloConfig, ledger: PrivacyLedger, data: Path, wishes: Wishes, say: Say) -> None:
    delta = RunConfig.dp_delta if wishes.delta is None else wishes.delta
    before = wishes.before(delta)
    if before is None:
        raise UserError(
            f"{ledger.path} is not there: state what these samples have spent before, --dp-spent EPSILON; 0 if they "
            f"were never used. If there was a ledger: {CURE}"
        )
    if (trained := Ledger(ledger.folder).trained) and not before.epsilon:
        raise UserError(
            f"--dp-spent is 0, but {ledger.folder / ROUNDS_LEDGER} counts {trained} rounds that left before; state "
            "what they spent (what left unprotected has no bound), or, for other samples, move that file away"
        )
    memory = Memory(ledger.folder / MEMORY)
    if memory.rounds():
        raise UserError(
            f"{memory.folder} has what this silo trained before this ledger began, perhaps unprotected: all that "
            "follows from it would tell of it; move that folder away: the silo begins anew from the server's model"
        )
    clip = RunConfig.dp_clip if wishes.clip is None else wishes.clip
    rounds = None if wishes.noise is not None else wishes.rounds or silo_config.plan.config.rounds
    left = None if wishes.epsilon is None else wishes.epsilon - before.epsilon
    if left is not None and left <= 0:
        raise UserError(
            f"--dp-epsilon is {wishes.epsilon:g}, and --dp-spent says that {before.epsilon:g} is spent already; "
            "nothing is left: this silo can't train, unless it allows more"
        )
    silo = open_silo(silo_config, data, ledger.folder, private=True)
    noise = wishes.noise
    if rounds is not None and left is not None:
        noise = noise_for(planned(silo, rounds), left, delta)
    assert noise is not None, "noise is given, or found for an epsilon"
    for text in advice(silo, delta, clip, noise):
        say(f"warning: {text}")
    expected = account.scaled(planned(silo, 1), noise)
    ledger.begin(Promise(wishes.epsilon, delta, clip, noise, rounds), before, expected)


def _go_on(ledger: PrivacyLedger, found: Account, wishes: Wishes, say: Say) -> None:
    """Change what the wishes change; what was spent stays, and the noise that was found."""
    old = found.promise
    before = wishes.before(found.before.delta)
    if before is not None and before != found.before:
        raise UserError(
            f"--dp-spent is {wishes.spent}, but {ledger.path} began with epsilon {found.before.epsilon:g} at delta "
            f"{found.before.delta:g} and has counted since; leave --dp-spent out"
        )
    if before is not None:
        say("warning: leave --dp-spent out from now on: if the ledger were lost, it would be begun anew without a word")
    if found.unprotected is not None and wishes.epsilon is not None:
        raise UserError(
            f"since {found.unprotected} what left was not protected ({ledger.path}), so that --dp-epsilon can't be "
            "promised any more; --dp-noise alone protects what is still to leave"
        )
    if wishes.rounds is not None and wishes.rounds != old.rounds:
        how = "was given" if old.rounds is None else f"was found for {old.rounds} rounds"
        raise UserError(
            f"--dp-rounds is {wishes.rounds}, but the noise, {old.noise:.4g}, {how} and stays; leave --dp-rounds "
            "out, or give other noise with --dp-noise"
        )
    if wishes.epsilon is not None and old.limit is not None and wishes.epsilon > old.limit:
        say(
            f"warning: epsilon {old.limit:g} was promised so far, and from now on it is {wishes.epsilon:g}: more than "
            "whoever agreed to the first figure was told"
        )
    # Without --dp-epsilon the limit stays: nobody loses it by leaving out a flag. What left unprotected has none.
    kept = None if found.unprotected else old.limit
    ledger.promise(
        Promise(
            limit=kept if wishes.epsilon is None else wishes.epsilon,
            delta=old.delta if wishes.delta is None else wishes.delta,
            clip=old.clip if wishes.clip is None else wishes.clip,
            noise=old.noise if wishes.noise is None else wishes.noise,
            rounds=old.rounds if wishes.noise in (None, old.noise) else None,
        )
    )
