"""A silo's privacy ledger holds never less than what left, and only its operator changes what it promises."""

import json
import shutil
import threading
from collections import Counter
from dataclasses import replace

import pytest

from fedamp.errors import UserError
from fedamp.federation.silo.ledger import Ledger
from fedamp.federation.silo.privacy_account import MOST_ROUNDS, Account, Before, Promise
from fedamp.federation.silo.privacy_ledger import EXPOSED, LOST, PrivacyLedger
from fedamp.federation.silo.privacy_words import in_numbers, in_words, left_text
from fedamp.federation.silo.unwilling import UnwillingError
from fedamp.federation.wire.phrases import SPENT_PRIVACY
from fedamp.privacy.account import epsilon
from fedamp.privacy.events import Event

ROUND = Counter({Event(0.1, 2.0): 5})
PROMISE = Promise(limit=2.0, delta=1e-5, clip=1.0, noise=2.0, rounds=3)


def begun(folder, before=Before(), **promised) -> PrivacyLedger:  # noqa: B008
    ledger = PrivacyLedger(folder)
    ledger.begin(replace(PROMISE, **promised), before, ROUND)
    return ledger


def times(number: int) -> Counter:
    return Counter({event: number * steps for event, steps in ROUND.items()})


def test_rounds_add_up_as_their_events_do(tmp_path):
    ledger = begun(tmp_path)
    assert ledger.account().epsilon() == ledger.account().spent == 0
    for k in (1, 2):
        assert ledger.spend(k, ROUND) == epsilon(times(k), 1e-5)
    other = Counter({Event(0.2, 1.5): 1})
    assert ledger.spend(3, other) == epsilon(times(2) + other, 1e-5)
    assert ledger.account().spending == times(2) + other
    assert ledger.account().spent == epsilon(times(2) + other, 1e-5)
    assert PrivacyLedger(tmp_path).account() == ledger.account()  # another process


def test_a_round_that_counted_nothing_does_not_leave(tmp_path):
    with pytest.raises(RuntimeError, match="nothing was counted"):
        begun(tmp_path).spend(1, Counter())


def test_a_repeated_round_pays_twice(tmp_path):
    ledger = begun(tmp_path)
    assert ledger.spend(7, ROUND) < ledger.spend(7, ROUND) == epsilon(times(2), 1e-5)
    assert [each.round for each in ledger.account().rounds] == [7, 7]


def test_what_was_spent_before_is_added(tmp_path):
    ledger = begun(tmp_path, Before(0.5, 1e-6))
    assert ledger.spend(1, ROUND) == 0.5 + epsilon(ROUND, 1e-5)
    assert ledger.account().delta == pytest.approx(1.1e-5)


def test_what_would_exceed_the_limit_is_not_spent(tmp_path):
    limit = (epsilon(times(3), 1e-5) + epsilon(times(4), 1e-5)) / 2
    ledger = begun(tmp_path, limit=limit)
    for k in (1, 2, 3):
        ledger.check()
        ledger.spend(k, ROUND)
    before = ledger.account()
    with pytest.raises(UnwillingError) as told:
        ledger.check()
    assert told.value.public == SPENT_PRIVACY == "it has spent the privacy that it allows itself"
    assert f"epsilon {epsilon(times(3), 1e-5):.4g} of {limit:g} is spent (delta 1e-05)" in str(told.value)
    with pytest.raises(UnwillingError):
        ledger.spend(4, ROUND)
    assert ledger.account() == replace(before, unfitting=ROUND)
    ledger.promise(replace(PROMISE, limit=2 * limit))  # raised by the operator
    ledger.check()
    assert ledger.spend(4, ROUND) == epsilon(times(4), 1e-5)


def test_only_one_round_is_trained_in_vain(tmp_path):
    """Rounds may differ, so that only the round itself tells what it costs; one that does not fit is kept in mind."""
    ledger = begun(tmp_path, limit=epsilon(times(2), 1e-5))
    ledger.spend(1, ROUND)
    ledger.check()
    with pytest.raises(UnwillingError):
        ledger.spend(2, times(3))
    with pytest.raises(UnwillingError):
        ledger.check()
    ledger.promise(replace(PROMISE, limit=3.0))
    ledger.check()


def test_a_limit_that_is_met_exactly_is_not_exceeded(tmp_path):
    ledger = begun(tmp_path, limit=epsilon(times(3), 1e-5))
    for k in (1, 2, 3):
        ledger.check()
        ledger.spend(k, ROUND)
    with pytest.raises(UnwillingError):
        ledger.check()


def test_before_its_first_round_the_rehearsal_says_what_it_costs(tmp_path):
    with pytest.raises(UnwillingError, match="the next round would bring it to"):
        begun(tmp_path, limit=epsilon(ROUND, 1e-5) / 2).check()


@pytest.mark.parametrize("already", [0, 1, 4])
def test_the_rounds_that_are_left_are_those_that_fit(tmp_path, already):
    """One more would not."""
    ledger = begun(tmp_path, Before(0.25, 1e-6), limit=0.25 + epsilon(times(9), 1e-5) * 1.001)
    for k in range(already):
        ledger.spend(k + 1, ROUND)
    assert ledger.account().rounds_left() == 9 - already
    like = " like the last one" if already == 1 else ""  # whether rounds are alike is not known yet
    assert left_text(ledger.account()) == f"enough for {9 - already} rounds more{like}"


def test_the_rounds_that_are_left_are_counted_by_what_the_last_ones_cost(tmp_path):
    ledger = begun(tmp_path, limit=epsilon(times(9), 1e-5) * 1.001)
    for k in (1, 2, 3):
        ledger.spend(k, times(2))
    assert ledger.account().rounds_left() == 1


def test_nothing_left_is_said_with_what_to_do(tmp_path):
    limit = epsilon(times(1), 1e-5)
    ledger = begun(tmp_path, limit=limit)
    ledger.spend(1, ROUND)
    assert ledger.account().rounds_left() == 0
    assert left_text(ledger.account()).startswith(
        "not enough is left for another round like the last one: this silo may"
    )
    with pytest.raises(UnwillingError):
        ledger.spend(2, ROUND)
    assert left_text(ledger.account()) == (
        "not enough is left for another round: this silo trains no more, unless its operator allows more than epsilon "
        f"{limit:g} (fedamp silo up --dp-epsilon)"
    )
    assert in_numbers(ledger.account())["rounds_left"] == 0


def test_without_a_limit_rounds_are_not_counted(tmp_path, monkeypatch):
    ledger = begun(tmp_path, limit=None)
    assert ledger.account().rounds_left() is None
    assert left_text(ledger.account()) == ""
    limited = begun(tmp_path / "limited", limit=1e6)
    assert limited.account().rounds_left() == MOST_ROUNDS
    assert left_text(limited.account()) == f"enough for {MOST_ROUNDS} rounds more at least"
    limited.give_up()
    assert limited.account().rounds_left() is None
    monkeypatch.setattr("fedamp.privacy.account.available", lambda: False)
    assert begun(tmp_path / "uncounted").account().rounds_left() is None


def test_a_lost_or_damaged_ledger_stops_the_silo(tmp_path):
    ledger = begun(tmp_path)

    def damage() -> None:
        ledger.path.write_text("[]")

    for harm in (ledger.path.unlink, lambda: ledger.path.write_text("{"), lambda: ledger.path.write_text("{}"), damage):
        harm()
        for act in (ledger.check, lambda: ledger.spend(1, ROUND), lambda: ledger.promise(PROMISE), ledger.give_up):
            with pytest.raises(UnwillingError) as told:
                act()
            assert told.value.public == LOST
            assert "--dp-spent EPSILON" in str(told.value)
            assert str(told.value).count(str(ledger.path)) == 1
            assert "give another" not in str(told.value)  # there is no other ledger to give
    with pytest.raises(UserError, match="is there already"):
        ledger.begin(PROMISE, Before(), ROUND)


def test_a_ledger_of_its_own_making_is_not_believed_if_the_server_knows_of_rounds(tmp_path):
    """A new disk, and a start script that still says --dp-spent 0."""
    ledger = begun(tmp_path)
    ledger.check(0)
    with pytest.raises(UnwillingError) as told:
        ledger.check(accepted=4)
    assert told.value.public == LOST
    begun(tmp_path / "stated", Before(0.5, 1e-5)).check(accepted=4)
    ledger.spend(5, ROUND)
    ledger.check(accepted=5)


def test_changes_are_noted_and_take_nothing_back(tmp_path):
    ledger = begun(tmp_path)
    ledger.spend(1, ROUND)
    ledger.promise(replace(PROMISE, limit=3.0, delta=1e-6, clip=0.5, noise=3.0, rounds=None))
    account = ledger.account()
    assert account.spending == ROUND
    assert account.spent == epsilon(ROUND, 1e-6) > epsilon(ROUND, 1e-5)
    (change,) = account.changes
    assert change["what"] == "limit 2 -> 3, delta 1e-05 -> 1e-06, clip 1 -> 0.5, noise 2 -> 3, rounds 3 -> none"
    ledger.promise(account.promise)
    assert len(ledger.account().changes) == 1


def test_a_promise_that_was_given_up_stays_given_up(tmp_path):
    ledger = begun(tmp_path)
    ledger.give_up()
    since = ledger.account().unprotected
    ledger.give_up()
    assert ledger.account().unprotected == since
    with pytest.raises(UnwillingError) as told:
        ledger.check()
    assert told.value.public == EXPOSED
    ledger.promise(replace(PROMISE, limit=None))  # protected again, and nothing promised
    ledger.check()
    ledger.spend(1, ROUND)
    assert ledger.account().unprotected == since


def test_without_the_library_events_are_counted_all_the_same(tmp_path, monkeypatch):
    ledger = begun(tmp_path, limit=None)
    monkeypatch.setattr("fedamp.privacy.account.available", lambda: False)
    assert ledger.spend(1, ROUND) is None
    assert ledger.account().spent is None
    monkeypatch.undo()
    assert ledger.account().epsilon() == epsilon(ROUND, 1e-5)


def test_a_full_disk_keeps_the_round_at_home(tmp_path, monkeypatch):
    ledger = begun(tmp_path)

    def full(path, value):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedamp.federation.silo.privacy_ledger.write_json", full)
    with pytest.raises(OSError, match="No space"):
        ledger.spend(1, ROUND)


def test_many_at_once_are_all_counted(tmp_path):
    begun(tmp_path, limit=None)
    one = Counter({Event(0.01, 5.0): 1})
    threads = [threading.Thread(target=lambda: PrivacyLedger(tmp_path).spend(1, one)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert PrivacyLedger(tmp_path).account().spending == Counter({Event(0.01, 5.0): 8})


def test_what_is_written_is_read_to_the_last_bit(tmp_path):
    spending = Counter({Event(1 / 3, 0.1 + 0.2): 7, Event(1.0, 2**0.5): 1})
    account = Account(PROMISE, Before(0.1, 1e-7), spending).noting("now", "why")
    assert Account.of(json.loads(json.dumps(account.to_dict()))) == account


@pytest.mark.parametrize("told_by", ["server", "count"])
def test_an_older_copy_is_noticed(tmp_path, told_by):
    """By the newest reply that the server has, or by the rounds that were counted here."""
    ledger = begun(tmp_path, limit=None)
    ledger.spend(1, ROUND)
    Ledger(tmp_path).count()
    copy = ledger.path.read_bytes()
    ledger.spend(2, ROUND)
    if told_by == "count":
        Ledger(tmp_path).count()
    ledger.check(accepted=2)
    ledger.path.write_bytes(copy)
    with pytest.raises(UnwillingError, match="not the newest") as refused:
        ledger.check(accepted=2 if told_by == "server" else 1)
    assert refused.value.public == LOST


def test_an_older_copy_of_the_whole_folder_is_noticed_also_if_something_was_spent_before(tmp_path):
    """Begun anew after round 3, by the server's count; then a backup from before its own first round is put back."""
    run, backup = tmp_path / "run", tmp_path / "backup"
    ledger = begun(run, Before(0.5, 1e-6), limit=None)
    ledger.check()  # at the first contact, when nobody says what was accepted
    ledger.check(accepted=3)
    shutil.copytree(run, backup)
    for k in (4, 5):
        ledger.spend(k, ROUND)
        Ledger(run).count()
        ledger.check(accepted=k)
    shutil.rmtree(run)
    shutil.copytree(backup, run)
    ledger.check(accepted=3)
    with pytest.raises(UnwillingError, match=r"the server has this silo's reply of round 5, and the last .* is 3"):
        ledger.check(accepted=5)


def test_rounds_that_were_counted_before_it_began_are_not_missed(tmp_path):
    for _ in range(3):
        Ledger(tmp_path).count()
    ledger = begun(tmp_path, Before(0.5, 1e-6))
    ledger.check(accepted=3)
    ledger.spend(4, ROUND)
    Ledger(tmp_path).count()
    ledger.check(accepted=4)


@pytest.mark.parametrize("event", [Event(-20.0, 2.0), Event(1.5, 2.0), Event(0.1, -1.0)])
def test_steps_that_can_not_be_are_not_written_down(tmp_path, event):
    """Else the ledger could not be read any more: a server must not be able to do that."""
    ledger = begun(tmp_path)
    before = ledger.path.read_bytes()
    with pytest.raises(ValueError, match="steps can have rate"):
        ledger.spend(1, Counter({event: 5}))
    assert ledger.path.read_bytes() == before


def test_a_promise_that_was_given_up_is_told_no_more(tmp_path):
    ledger = begun(tmp_path)
    assert in_words(ledger.account())[0].startswith("Promised")
    ledger.give_up()
    assert in_words(ledger.account())[0].startswith("Given up")
    assert not any("Promised" in line for line in in_words(ledger.account()))
    assert in_numbers(ledger.account())["limit"] is None
