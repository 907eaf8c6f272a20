"""A silo's privacy ledger, a file of its own: what was promised, and what has been spent of it.

run/privacy.json   a round is in it before anything of the round is used or leaves, so that it never holds less than
                   what left, whenever the machine stops; no server, restart or repeated round can take from it

Only `fedamp silo up` begins one (`protection`): a silo that has lost its ledger waits for its operator. That there was
one stands in run/ledger.json, which nobody moves away with it and nobody takes for a leftover, as a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fedamp.errors import UserError
from fedamp.federation.moments import now
from fedamp.federation.silo.ledger import Ledger
from fedamp.federation.silo.privacy_account import Account, Before, Promise, SpentRound, check_steps
from fedamp.federation.silo.unwilling import UnwillingError
from fedamp.federation.wire.phrases import SPENT_PRIVACY
from fedamp.files import write_json
from fedamp.privacy.account import SMALL
from fedamp.privacy.events import Spending

LEDGER = "privacy.json"
LOST = "it does not know what it has spent of its privacy"
EXPOSED = "what it sends would not be protected as it has promised"
CURE = (
    "put the newest copy in its place, if nothing has left since it was made; else move it away, and start with all "
    "that was spent: --dp-spent EPSILON"
)


@dataclass(frozen=True)
class PrivacyLedger:
    """The ledger in a silo's folder."""

    folder: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / LEDGER

    def read(self) -> Account | None:
        """Return the account, or None if there is no ledger."""
        try:
            return Account.of(json.loads(self.path.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (UserError, OSError, KeyError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UnwillingError(LOST, f"{self.path} can't be read ({reason}); {CURE}") from None

    def account(self) -> Account:
        """Return the account; a silo that has none can't say what it may still spend."""
        found = self.read()
        if found is None:
            raise UnwillingError(LOST, f"{self.path} is not there; {CURE}")
        return found

    @property
    def gone(self) -> bool:
        """Whether a ledger was begun here that is not here any more."""
        return not self.path.exists() and Ledger(self.folder).private

    def promised(self) -> Account | None:
        """Return the account, or None if nothing was ever promised; a promise stands also if its ledger is gone."""
        if self.gone:
            raise UnwillingError(
                LOST,
                f"{self.path} is gone, and promises privacy, which what leaves now would not have; {CURE}. Or give the "
                "promise up for good: fedamp silo up --unprotected",
            )
        return self.read()

    # -- by the operator -------------------------------------------------------------------------------------------

    def begin(self, promise: Promise, before: Before, expected: Spending) -> None:
        """Begin a ledger; one that is there is never begun anew."""
        with self._locked():
            if self.path.exists():
                raise UserError(f"{self.path} is there already; expected none")
            rounds = Ledger(self.folder)
            rounds.note_private(True)  # first: a ledger that nobody would miss must never be there
            self._write(Account(promise, before, expected, counted=rounds.trained))

    def promise(self, promise: Promise) -> None:
        """Promise something else from now on; what was spent stays."""
        with self._locked():
            Ledger(self.folder).note_private(True)  # if run/ledger.json was moved away
            self._write(self.account().with_promise(promise, now()))

    def give_up(self) -> None:
        """Note that replies leave unprotected from now on, as the operator wishes: no epsilon bounds that."""
        with self._locked():
            moment, account = now(), self.account()
            if account.unprotected is None:
                self._write(account.noting(moment, "unprotected and unlimited from then on", unprotected=moment))

    def give_up_gone(self) -> None:
        """Miss a ledger that is gone no more, as the operator wishes: nothing is promised from now on."""
        with self._locked():
            Ledger(self.folder).note_private(False)

    # -- by each round ---------------------------------------------------------------------------------------------

    def check(self, accepted: int | None = None) -> None:
        """Raise if it is known that one more round would spend too much.

        And if a reply has left that the ledger does not know of, as one that was put back from an older copy: the
        server has taken that of round `accepted`, if it said so, or run/ledger.json has counted more rounds.
        """
        account = self._heard(accepted)
        if account.unprotected is None and (missing := self._missing(account, accepted)):
            raise UnwillingError(LOST, f"{missing}; {self.path} is not the newest: {CURE}")
        _check(account, account.next_round, "the next round")

    def _heard(self, accepted: int | None) -> Account:
        """Return the account, once it has noted which round the server had taken when it first asked.

        Rounds until then are in what the operator stated as spent before; if that was nothing, there were none. So all
        that an older copy lacks is known, unless the copy is from before this note: then it looks like a new ledger.
        """
        account = self.account()
        if accepted is None or account.accepted is not None or account.rounds or not account.before.epsilon:
            return account
        with self._locked():
            account = replace(self.account(), accepted=accepted)
            self._write(account)
            return account

    def _missing(self, account: Account, accepted: int | None) -> str:
        """Return in words which rounds have left that the account does not know of, "" if none is known to have."""
        known = max([account.accepted or 0, *(each.round for each in account.rounds)])
        if accepted is not None and accepted > known:
            return f"the server has this silo's reply of round {accepted}, and the last one accounted for is {known}"
        trained, here = Ledger(self.folder).trained, account.counted + len(account.rounds)
        return f"{trained} rounds have left this silo, and {here} are accounted for" if trained > here else ""

    def spend(self, k: int, spending: Spending, asked: str | None = None, reply: str | None = None) -> float | None:
        """Write down what round k has cost, before its state is used or leaves; return the epsilon spent in all.

        `asked` is the digest of the message, and `reply` that of the answer, which may be sent again for nothing.

        If that would be more than was promised, it is not spent, and the round must be forgotten. It is kept in mind,
        so that no other one is trained in vain.
        """
        if not spending:
            raise RuntimeError(f"round {k} was trained with privacy, but nothing was counted")
        check_steps(spending)
        with self._locked():
            account = self.account()
            try:
                epsilon = _check(account, spending, f"round {k}")
            except UnwillingError:
                self._write(replace(account, unfitting=spending))
                raise
            spent = SpentRound(k, now(), spending, epsilon, asked, reply)
            self._write(replace(account, rounds=(*account.rounds, spent)))
            return epsilon

    def paid(self, asked: str) -> str | None:
        """Return the digest of the answer to a message that was paid for; None if none was."""
        return next((each.reply for each in reversed(self.account().rounds) if each.asked == asked), None)

    def last_asked(self, number: int) -> list[str]:
        """Return the digests of the messages of the last rounds."""
        return [each.asked for each in self.account().rounds[-number:] if each.asked is not None]

    def uncounted(self) -> bool:
        """Return whether a round was paid for that run/ledger.json has not counted: the silo was killed in between."""
        account = self.account()
        return Ledger(self.folder).trained < account.counted + len(account.rounds)

    def _write(self, account: Account) -> None:
        write_json(self.path, replace(account, spent=finite_epsilon(account)).to_dict())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{LEDGER}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def finite_epsilon(account: Account, more: Spending | None = None) -> float | None:
    """Return the epsilon of the account and `more`, if it is known; one that is infinite promises nothing."""
    found = account.epsilon_if_known(more)
    if found == math.inf:
        promise = account.promise
        cure = "more --dp-noise, say 1" if promise.delta >= SMALL else f"a larger --dp-delta, say {SMALL:g}"
        raise UnwillingError(
            EXPOSED,
            f"with noise {promise.noise:g} and delta {promise.delta:g} epsilon is infinite, which protects nobody; "
            f"give {cure}",
        )
    return found


def _check(account: Account, spending: Spending, what: str) -> float | None:
    """Return the epsilon that this would bring the account to, if it is known; raise if that is too much."""
    limit = account.promise.limit
    if limit is None:
        return finite_epsilon(account, spending)
    if account.unprotected is not None:
        raise UnwillingError(
            EXPOSED,
            f"since {account.unprotected} replies may have left unprotected, so that epsilon {limit:g} can't be "
            "promised any more; go on with --dp-noise alone, which protects without a limit",
        )
    epsilon = account.epsilon(spending)
    if epsilon > limit:
        raise UnwillingError(
            SPENT_PRIVACY,
            f"epsilon {account.epsilon():.4g} of {limit:g} is spent (delta {account.delta:g}), and {what} would bring "
            f"it to {epsilon:.4g}; this silo trains no more, unless its operator allows more (--dp-epsilon)",
        )
    return epsilon
