"""What leaves a silo that protects its samples, and what its server makes of it."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedamp.federation.server.live import look
from fedamp.federation.server.overview import overview, see
from fedamp.federation.silo import diary
from fedamp.federation.silo.privacy_account import Before
from fedamp.federation.silo.privacy_ledger import EXPOSED, LOST, PrivacyLedger
from fedamp.federation.wire.phrases import SPENT_PRIVACY
from fedamp.privacy.account import epsilon
from fedamp.privacy.events import Event
from fedamp.privacy.promise import Privacy
from fedamp.records.facts import WITHHELD
from fedamp.records.reading import read_lines, read_run
from fedamp.rows import Rows
from fedamp.training.trainer import Trainer
from federation.inprocess import Local, plan_of, write_silos
from federation.private import A_STEP, PROMISE, lose_patience, protect
from federation.watched import Watched

pytestmark = pytest.mark.many
"""Run after the fast tests, on all cores: these train."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    lose_patience(monkeypatch)


LEAVING = {"num-examples", "train-seconds"}


def watched_replies(tmp_path, rounds: int = 2, private=(0, 1), **settings) -> tuple[Local, list[tuple[int, set[str]]]]:
    """Play a federation, and return whose replies had which names in them."""
    seen = []

    def note(number, reply):
        content = reply.content
        seen.append((number, set(content.keys()), set(content.metric_records["metrics"])))
        return reply

    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=rounds, **settings), data, tamper=note)
    protect(local, *private)
    local.serve()
    return local, seen


@pytest.mark.parametrize("method", ["fedamp", "autoamp", "apfl", "fedfomo"])
def test_what_leaves_is_exactly_the_list(tmp_path, method):
    local, seen = watched_replies(tmp_path, method=method, validation=0.2)
    assert {number for number, _, _ in seen} == {0, 1, 2}
    for number, records, metrics in seen:
        assert records == {"arrays", "metrics"}
        if number in (0, 1):
            assert metrics == LEAVING
        else:
            assert {"num-test", "test.own.accuracy", "test.own.loss", "validation.own.loss"} <= metrics
    # At home all of it is known.
    assert "round 2: own model" in (local.houses[0].folder / "log.txt").read_text()
    line = diary.rounds(local.houses[0].folder)[1]
    assert line["test"]["own"] is not None
    assert line["samples"].keys() == {"train", "test", "validation"}
    assert json.loads((local.houses[0].folder / "models/own.json").read_text())["score"]["test"] is not None


def test_after_the_last_round_no_score_leaves_either(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=1), data)
    protect(local, 0)
    local.serve()
    silo = local.houses[0].open(None)
    message, _ = silo.templates()
    assert silo.look(1, 1, message).keys() == {"num-examples"}
    assert local.houses[2].open(None).look(1, 1, message).keys() > {"num-test", "test.own.loss"}


def test_a_change_of_data_is_not_told(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data)
    protect(local, 0)
    local.serve(rounds=1)
    was = np.load(local.paths[0])
    np.savez(local.paths[0], x=was["x"][:-3], y=was["y"][:-3])
    record = local.serve()
    assert record.state.standing(local.federation.members[0].key).data_changed is None
    assert "rows 3 removed" in (local.houses[0].folder / "log.txt").read_text()


def test_each_round_has_a_secret_of_its_own(tmp_path, monkeypatch):
    found = []
    changed = Trainer.changed

    def noted(self, **settings):
        found.extend(filter(None, [settings.get("privacy")]))
        return changed(self, **settings)

    monkeypatch.setattr(Trainer, "changed", noted)
    watched_replies(tmp_path, rounds=3, private=(0,))
    secrets = [privacy.secret for privacy in found]
    assert len(secrets) == len(set(secrets)) == 3
    assert max(secrets).bit_length() > 100
    assert {(privacy.clip, *privacy.noise.items()) for privacy in found} == {(1.0, (0, 1.5))}


def test_the_noise_does_not_follow_from_what_the_server_knows(tmp_path):
    """Who has plan, seed, message and even the data can't draw the reply again; with the run's seed he could."""
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data), data)
    protect(local, 0)
    silo = local.houses[0].open(None)
    message, _ = silo.templates()

    def reply() -> Rows:
        return silo.play(1, 0, message)[0]["w"]

    assert not torch.equal(reply().params, reply().params)
    known = silo.setup.trainer.changed(privacy=Privacy(1.0, {0: 1.5}))
    local_by_seed = [known.local(silo.setup.clients, 1) for _ in range(2)]
    state = silo.setup.method.client_init(silo.setup.w)
    one, two = (silo.setup.method.client_update(state, message, each)[1]["w"] for each in local_by_seed)
    assert torch.equal(one.params, two.params)
    assert not torch.equal(one.params, reply().params)


def test_the_ledger_has_each_round_before_its_reply_leaves(tmp_path):
    """Also one that is lost on the way; asked for again, the same reply leaves, and costs nothing."""
    seen = []

    def lose_once(number, reply):
        if number != 1:
            return reply
        seen.append(len(ledger.account().rounds))
        return None if len(seen) == 1 else reply

    data = write_silos(tmp_path / "data", 2)
    local = Local(tmp_path, plan_of(data, rounds=2), data, tamper=lose_once)
    local.rules = replace(local.rules, min_silos=2)
    protect(local, 1)
    ledger = PrivacyLedger(local.houses[1].folder)
    local.serve()
    account = ledger.account()
    assert seen == [1, 1, 2]
    assert [each.round for each in account.rounds] == [1, 2]
    steps = 2 * -(-local.houses[1].open(None).samples // 7)
    assert account.spending.total() == 2 * steps
    assert account.spent == epsilon(account.spending, 1e-5)


def test_a_state_that_was_not_paid_for_is_not_kept(tmp_path, monkeypatch):
    """Else a server could say that it had accepted that round, and get what the next one makes of it."""
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data), data)
    protect(local, 0)
    silo = local.houses[0].open(None)

    def full(self, k, spending):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PrivacyLedger, "spend", full)
    with pytest.raises(OSError, match="No space"):
        silo.play(1, 0, silo.templates()[0])
    assert silo.memory.rounds() == []
    assert not silo.models.exists()


def test_two_private_silos_and_an_open_one(tmp_path):
    """The budget of one is spent after two rounds: it is absent from then on, not bad, and the others go on."""
    names = ["able", "baker", "charlie"]
    local = Watched(tmp_path, names, rounds=4, method="fedamp")
    protect(local, 0)
    per_round = 2 * -(-local.houses[1].open(None).samples // 7)
    rate = 7 / local.houses[1].open(None).samples
    costs = [epsilon(Counter({Event(rate, 1.5): k * per_round}), 1e-5) for k in (1, 2, 3)]
    protect(local, 1, limit=(costs[1] + costs[2]) / 2)
    local.play()

    lines = read_lines(tmp_path / "record/rounds.jsonl")
    assert [line["present"] for line in lines[1:5]] == [[True] * 3] * 2 + [[True, False, True]] * 2
    assert [line["absent"] for line in lines[3:5]] == [{"baker": SPENT_PRIVACY}] * 2
    assert all(line["test"]["own"]["accuracy"][:2] == [None, None] for line in lines[:5])
    assert lines[1]["test"]["own"]["accuracy"][2] is not None
    account = PrivacyLedger(local.houses[1].folder).account()
    assert [each.epsilon for each in account.rounds] == costs[:2]
    log = (local.houses[1].folder / "log.txt").read_text()
    assert f"not taking part: epsilon {costs[1]:.4g} of {account.promise.limit:g} is spent" in log
    assert f"round 2: epsilon {costs[1]:.4g} of" in log

    found = overview(see(tmp_path))
    assert [silo["withholds"] for silo in found["silos"]] == [True, True, False]
    assert [silo["score"] is None for silo in found["silos"]] == [True, True, False]
    assert found["silos"][1]["strikes"] == 0
    page = look(tmp_path)
    assert page.values["withheld"] == WITHHELD
    result = read_run(tmp_path / "record").result
    assert result["facts"]["withheld"] == [0, 1]
    assert result["facts"].get("undefined") is None
    assert result["per_client"][:2] == [None, None]
    assert "scores withheld by able, baker" in (tmp_path / "record/log.txt").read_text()


@pytest.mark.parametrize("method", ["fedamp", "autoamp"])
def test_a_federation_of_private_silos_alone(tmp_path, fedamp_command, method):
    names = ["able", "baker", "charlie"]
    local = Watched(tmp_path, names, rounds=2, method=method, validation=0.2)
    protect(local, 0, 1, 2)
    local.play()
    found = overview(see(tmp_path))
    assert (found["state"], found["mean"], found["worst"]) == ("finished", None, None)
    assert look(tmp_path).plots == {}
    assert "all silos keep their scores at home" in (tmp_path / "record/log.txt").read_text()
    code, out, err = fedamp_command("federation", "status", tmp_path)
    assert code == 0, err
    assert "withheld" in out
    code, out, err = fedamp_command("report", tmp_path / "record")
    assert "Traceback" not in err
    assert (code, err) == (0, "")


def test_a_silo_without_its_ledger_does_not_train(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data)
    protect(local, 1)
    local.serve(rounds=1)
    PrivacyLedger(local.houses[1].folder).path.unlink()
    local.serve()
    lines = read_lines(tmp_path / "record/rounds.jsonl")
    assert [line["absent"] for line in lines if line["round"] == 2] == [{"silo-1": LOST}]
    ledger = PrivacyLedger(local.houses[1].folder)
    assert not ledger.path.exists()
    ledger.begin(PROMISE, Before(), A_STEP)  # by hand, and untrue: the server knows better
    local.serve(rounds=3)
    lines = read_lines(tmp_path / "record/rounds.jsonl")
    assert [line["absent"] for line in lines if line["round"] == 3 and "absent" in line] == [{"silo-1": LOST}]


def test_a_silo_without_its_ledger_does_not_train_unprotected_either(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data)
    protect(local, 1)
    local.serve(rounds=1)
    PrivacyLedger(local.houses[1].folder).path.unlink()
    local.houses[1] = replace(local.houses[1], private=False)
    local.serve()
    lines = read_lines(tmp_path / "record/rounds.jsonl")
    assert [line["absent"] for line in lines if line["round"] == 2] == [{"silo-1": LOST}]
    PrivacyLedger(local.houses[1].folder).give_up_gone()
    record = local.serve(rounds=3)
    assert record.state.standing(local.federation.members[1].key).accepted == 3


def test_a_promise_is_kept_even_if_nobody_asks_for_it_any_more(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=2), data)
    protect(local, 1)
    local.serve(rounds=1)
    local.houses[1] = replace(local.houses[1], private=False)
    local.serve()
    lines = read_lines(tmp_path / "record/rounds.jsonl")
    assert [line["absent"] for line in lines if line["round"] == 2] == [{"silo-1": EXPOSED}]
    PrivacyLedger(local.houses[1].folder).give_up()
    record = local.serve(rounds=3)
    assert record.state.standing(local.federation.members[1].key).accepted == 3
    assert not record.state.standing(local.federation.members[1].key).withholds
