"""How a silo's ledger comes to promise what its operator wishes (`fedamp silo up --dp-...`); what it would promise.

It is settled once, when `silo up` starts, and only here is a ledger begun: a process that trains keeps what it finds,
and waits if it finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.federation.moments import now
from fedamp.federation.plan import SiloConfig
from fedamp.federation.silo.ledger import LEDGER as ROUNDS_LEDGER
from fedamp.federation.silo.ledger import Ledger
from fedamp.federation.silo.memory import Memory
from fedamp.federation.silo.planned_noise import advice, noise_for, planned
from fedamp.federation.silo.privacy_account import Account, Promise
from fedamp.federation.silo.privacy_ledger import CURE, PrivacyLedger, finite_epsilon
from fedamp.federation.silo.privacy_wishes import Wishes
from fedamp.federation.silo.privacy_words import left_text, spent_text, status_text
from fedamp.federation.silo.round import MEMORY, Silo, open_silo
from fedamp.privacy import account

Say = Callable[[str], None]


def settle(silo_config: SiloConfig, folder: Path, data: Path, wishes: Wishes, say: Say) -> bool:
    """Bring the ledger in line with the wishes, and return whether samples are protected; refuse what contradicts."""
    ledger = PrivacyLedger(folder)
    if not wishes.private:
        return _without(ledger, wishes, say)
    wished = intended(silo_config, folder, data, wishes, say)
    if ledger.read() is None:
        ledger.begin(wished.promise, wished.before, wished.expected)
    else:
        ledger.promise(wished.promise)
    settled = ledger.account()
    how = f"noise {settled.promise.noise:.4g}, clip {settled.promise.clip:g}"
    if settled.rounds_left() == 0:
        say(f"samples are protected ({how}); {spent_text(settled)}")
        say(f"warning: {left_text(settled)}")
    else:
        say(f"samples are protected ({how}); {status_text(settled)}")
    return True


def intended(silo_config: SiloConfig, folder: Path, data: Path, wishes: Wishes, say: Say) -> Account:
    """Return the account as the wishes would have it; nothing is written. Refuse what contradicts a ledger."""
    ledger = PrivacyLedger(folder)
    found = ledger.read()
    if found is None:
        wished = _begun(silo_config, ledger, data, wishes, say)
    else:
        wished = found.with_promise(_changed(ledger, found, wishes, say), now())
        _check_kept(ledger, found, wished)
        if wished.promise != found.promise:
            _advise(open_silo(silo_config, data, folder, private=True), wished.promise, say)
    finite_epsilon(wished, wished.next_round)
    return wished


def _check_kept(ledger: PrivacyLedger, found: Account, wished: Account) -> None:
    """Refuse another limit that is broken already: what has left can't be promised less than it told."""
    limit, spent = wished.promise.limit, finite_epsilon(wished)
    if limit is not None and limit != found.promise.limit and spent is not None and spent > limit:
        raise UserError(
            f"--dp-epsilon is {limit:g}, but epsilon {spent:.4g} is spent already ({ledger.path}), which no smaller "
            "promise takes back; give at least that much, or leave --dp-epsilon as it was: to train no more, end the "
            "silo"
        )


def _without(ledger: PrivacyLedger, wishes: Wishes, say: Say) -> bool:
    """Let a silo go on without protection, if nothing was promised, or its operator gives up what was."""
    if ledger.gone and wishes.unprotected:
        ledger.give_up_gone()
        say(f"warning: what leaves is not protected; {ledger.path} is gone, so that nothing says what was promised")
        return False
    found = ledger.promised()
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


def _begun(silo_config: SiloConfig, ledger: PrivacyLedger, data: Path, wishes: Wishes, say: Say) -> Account:
    """Return the account that would begin."""
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
    promise = Promise(wishes.epsilon, delta, clip, noise, rounds)
    _advise(silo, promise, say)
    return Account(promise, before, account.scaled(planned(silo, 1), noise))


def _advise(silo: Silo, promise: Promise, say: Say) -> None:
    for text in advice(silo, promise.delta, promise.clip, promise.noise):
        say(f"warning: {text}")


def _changed(ledger: PrivacyLedger, found: Account, wishes: Wishes, say: Say) -> Promise:
    """Return what the wishes change; what was spent stays, and the noise that was found."""
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
    # Without --dp-epsilon the limit stays: nobody loses it by leaving out a flag. What left unprotected has none.
    kept = None if found.unprotected else old.limit
    promise = Promise(
        limit=kept if wishes.epsilon is None else wishes.epsilon,
        delta=old.delta if wishes.delta is None else wishes.delta,
        clip=old.clip if wishes.clip is None else wishes.clip,
        noise=old.noise if wishes.noise is None else wishes.noise,
        rounds=old.rounds if wishes.noise in (None, old.noise) else None,
    )
    if old.limit is not None and promise.limit is not None:
        for name, was, will in ("epsilon", old.limit, promise.limit), ("delta", old.delta, promise.delta):
            if will > was:
                say(
                    f"warning: {name} {was:g} was promised so far, and from now on it is {will:g}: more than whoever "
                    "agreed to the first figure was told"
                )
    return promise
