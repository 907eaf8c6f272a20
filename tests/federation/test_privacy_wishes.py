"""What a silo's operator wishes about privacy, and what becomes of it in the ledger; what is told about it."""

import contextlib
import json
import tomllib
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedamp.errors import UserError
from fedamp.federation.plan import Plan, SiloConfig
from fedamp.federation.plan_files import write_silo_config
from fedamp.federation.silo import app, checkup, connect, live, protection
from fedamp.federation.silo.kept_setup import kept_setup
from fedamp.federation.silo.ledger import Ledger
from fedamp.federation.silo.overview import overview
from fedamp.federation.silo.privacy_account import Before
from fedamp.federation.silo.privacy_ledger import PrivacyLedger
from fedamp.federation.silo.privacy_wishes import Wishes
from fedamp.federation.silo.privacy_words import NOT_COVERED
from fedamp.privacy.account import epsilon
from fedamp.privacy.events import Event
from federation.inprocess import Local, plan_of, write_silos
from federation.private import A_STEP, PROMISE, lose_patience, protect
from federation.provisioned import NAMES, make_plan, silo_data
from federation.watched import Watched


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    lose_patience(monkeypatch)


@pytest.fixture
def settled(tmp_path):
    """Settle wishes of a silo whose plan has two rounds, each at the same cost; return its ledger."""
    bundle, data = tmp_path / "bundle", silo_data(tmp_path / "own.npz")
    config = SiloConfig(make_plan(method="fedamp", model="logistic", batch_size=20), "able", 0, "nowhere:1")
    bundle.mkdir()
    write_silo_config(bundle, config)

    def settle(**wishes):
        said = []
        settle.private = protection.settle(config, bundle / "run", data, Wishes(**wishes), said.append)
        settle.said = "\n".join(said)
        return settle.ledger

    settle.bundle, settle.data, settle.ledger = bundle, data, PrivacyLedger(bundle / "run")
    return settle


def test_noise_is_found_for_the_planned_rounds(settled):
    """So that exactly these rounds, and no more, fit into what was promised."""
    account = settled(epsilon=3.0, spent="0").account()
    promise = account.promise
    assert (promise.limit, promise.delta, promise.clip, promise.rounds) == (3.0, 1e-5, 1.0, 2)
    assert account.before == Before(0, 0)
    both = Counter({event: 2 * steps for event, steps in account.expected.items()})
    assert 2.99 < epsilon(both, 1e-5) <= 3.0
    ledger = settled.ledger
    for k in (1, 2):
        ledger.check()
        ledger.spend(k, account.expected)
    with pytest.raises(UserError, match="would bring it to"):
        ledger.spend(3, account.expected)
    assert settled.private
    assert f"noise {promise.noise:.4g}, clip 1" in settled.said


@pytest.mark.parametrize("method", ["fedamp", "autoamp", "apfl", "fedfomo", "ditto"])
def test_what_was_rehearsed_is_what_is_spent(tmp_path, method):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, rounds=3, method=method, clients=3)
    local = Local(tmp_path, plan, data)
    for i, house in local.houses.items():
        wishes = Wishes(epsilon=4.0 + i, spent="0")
        protection.settle(house.config, house.folder, house.data, wishes, lambda text: None)
        local.houses[i] = replace(house, private=True)
    record = local.serve()
    for i, house in local.houses.items():
        account = house.privacy.account()
        assert [each.round for each in account.rounds] == [1, 2, 3]
        assert 0.98 * (4 + i) < account.spent <= 4 + i
        assert record.state.standing(local.federation.members[i].key).accepted == 3


def test_what_was_spent_before_leaves_less(settled):
    account = settled(epsilon=3.0, spent="1.25,1e-6").account()
    assert account.before == Before(1.25, 1e-6)
    both = Counter({event: 2 * steps for event, steps in account.expected.items()})
    assert 2.99 < account.epsilon(both) <= 3.0
    assert account.delta == pytest.approx(1.1e-5)
    with pytest.raises(UserError, match=r"--dp-spent is 2, but .* began with epsilon 1.25"):
        settled(epsilon=3.0, spent="2")
    settled(epsilon=3.0, spent="1.25")
    assert "leave --dp-spent out from now on" in settled.said


def test_only_once_without_a_ledger(settled):
    with pytest.raises(UserError, match=r"privacy.json is not there: state what these samples have spent before"):
        settled(epsilon=3.0)
    assert not settled.ledger.path.exists()
    Ledger(settled.bundle / "run").count()
    with pytest.raises(UserError, match="counts 1 rounds that left before"):
        settled(epsilon=3.0, spent="0")
    with pytest.raises(UserError, match="nothing is left"):
        settled(epsilon=3.0, spent="3")
    settled(epsilon=3.0, spent="1")
    settled(epsilon=3.0)


def test_a_restart_keeps_the_noise_and_the_account(settled):
    first = settled(epsilon=3.0, spent="0", clip=0.5).account()
    settled.ledger.spend(1, first.expected)
    again = settled(epsilon=3.0).account()
    assert (again.promise, again.changes) == (first.promise, ())
    raised = settled(epsilon=4.0, delta=1e-6).account()
    assert (raised.promise.noise, raised.promise.clip, raised.spending) == (first.promise.noise, 0.5, first.expected)
    assert [change["what"] for change in raised.changes] == ["limit 3 -> 4, delta 1e-05 -> 1e-06"]
    with pytest.raises(UserError, match="was found for 2 rounds and stays"):
        settled(epsilon=4.0, rounds=9)
    given = settled(noise=7.0).account()
    assert (given.promise.limit, given.promise.noise, given.promise.rounds) == (4.0, 7.0, None)
    assert given.spending == first.expected


def test_a_weaker_promise_is_said(settled):
    """A larger delta pays for more rounds just as a larger epsilon does."""
    settled(epsilon=3.0, spent="0")
    settled(epsilon=3.0, delta=1e-6, clip=0.5)
    assert "warning" not in settled.said
    settled(epsilon=3.0, delta=0.004)
    assert "warning: delta 1e-06 was promised so far, and from now on it is 0.004: more than whoever" in settled.said
    assert settled.said.count("warning") == 1
    settled(epsilon=4.0, delta=0.004)
    assert "warning: epsilon 3 was promised so far, and from now on it is 4: more than whoever" in settled.said
    assert settled.said.count("warning") == 1
    settled(noise=500.0, delta=0.2)
    assert "warning: delta 0.004 was promised so far, and from now on it is 0.2" in settled.said
    assert "warning: dp_delta is 0.2, and able has up to" in settled.said
    assert "warning: noise drowns what able could learn" in settled.said
    settled(epsilon=4.0)
    assert "warning" not in settled.said


def test_without_a_limit_no_delta_was_promised(settled):
    settled(noise=2.0, spent="0")
    settled(noise=2.0, delta=0.001)
    assert "warning" not in settled.said


def test_a_promise_is_not_lost_by_leaving_out_a_flag(settled):
    settled(epsilon=3.0, spent="0")
    with pytest.raises(UserError, match=r"promises privacy.*keep the promise with --dp-epsilon 3, or give it up"):
        settled()
    settled(unprotected=True)
    assert not settled.private
    assert settled.ledger.account().unprotected is not None
    assert settled.ledger.account().changes[-1]["what"] == "unprotected and unlimited from then on"
    settled()
    assert not settled.private
    with pytest.raises(UserError, match="can't be promised any more"):
        settled(epsilon=9.0)
    assert settled(noise=2.0).account().promise.limit is None
    assert settled.private
    assert "no epsilon bounds what is spent" in settled.said


@pytest.mark.parametrize("lost", ["privacy.json", "privacy.json*"])
def test_a_promise_is_not_lost_with_its_ledger(settled, lost):
    """Also not with the lock beside it."""
    settled(epsilon=3.0, spent="0")
    Ledger(settled.bundle / "run").count()
    for path in (settled.bundle / "run").glob(lost):
        path.unlink()
    with pytest.raises(UserError, match=r"is gone, and promises privacy, .* --dp-spent EPSILON. Or give .* --unprot"):
        settled()
    with pytest.raises(UserError, match="counts 1 rounds that left before"):
        settled(epsilon=3.0, spent="0")
    assert settled(epsilon=3.0, spent="1.5").account().before.epsilon == 1.5
    settled.ledger.path.unlink()
    settled(unprotected=True)
    assert not settled.private
    assert "warning: what leaves is not protected" in settled.said
    settled()
    assert not settled.ledger.path.exists()
    settled(epsilon=3.0, spent="1.5")
    settled.ledger.path.unlink()
    with pytest.raises(UserError, match="promises privacy"):
        settled()


def test_a_ledger_that_is_gone_is_told_where_people_look(federation, tmp_path, fedamp_command):
    bundle, data = federation / "bundles" / NAMES[0], silo_data(tmp_path / "own.npz")
    ledger = PrivacyLedger(bundle / "run")
    ledger.begin(replace(PROMISE, limit=3.0), Before(), A_STEP)
    ledger.path.unlink()
    words = f"{ledger.path} is gone, and promises privacy, which what leaves now would not have; put the newest copy in"
    for command in (
        ("up", bundle, "--data", data),
        ("privacy", bundle),
        ("privacy", bundle, "--json"),
        ("status", bundle),
    ):
        code, _, err = fedamp_command("silo", *command)
        assert code == 2
        assert err.startswith(f"fedamp: {words}")
        assert err.count("\n") == 1
    code, out, _ = fedamp_command("silo", "check", bundle, "--data", data, "--offline")
    assert code == 2
    assert f"fault  privacy     {words}" in out
    code, out, _ = fedamp_command(
        "silo", "check", bundle, "--data", data, "--offline", "--dp-noise", "3", "--dp-spent", "1"
    )
    assert code == 0
    assert "would be promised" in out


def test_without_wishes_nothing_is_written(settled):
    settled()
    settled(unprotected=True)
    assert not settled.ledger.path.exists()
    assert not settled.private


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"epsilon": 0.0}, "--dp-epsilon is 0.0; expected a finite number above 0"),
        ({"noise": -1.0}, "--dp-noise is -1.0"),
        ({"epsilon": 1.0, "clip": 1e300}, "--dp-clip is 1e\\+300; expected a number from 1e-06 to 1e\\+06"),
        ({"epsilon": 1.0, "clip": 1e-300}, "--dp-clip is 1e-300; expected"),
        ({"epsilon": 1.0, "delta": 1.0}, "--dp-delta is 1.0"),
        ({"delta": 1e-5}, "--dp-delta without --dp-epsilon or --dp-noise"),
        ({"spent": "0"}, "--dp-spent without"),
        ({"epsilon": 1.0, "unprotected": True}, "--unprotected contradicts"),
        ({"noise": 1.0, "rounds": 3}, "leave one of them out"),
    ],
)
def test_wishes_that_make_no_sense(wishes, words):
    with pytest.raises(UserError, match=words):
        Wishes(**wishes)


@pytest.mark.parametrize("text", ["", "two", "-1", "1,2", "inf", "nan", "1,1e-5,3", "1.2.3", "."])
def test_what_was_spent_is_a_number(text):
    with pytest.raises(UserError, match="expected the epsilon that these samples have spent"):
        Wishes(epsilon=1.0, spent=text).before(1e-5)


def test_models_and_plans_that_cannot_be_protected(tmp_path):
    data = write_silos(tmp_path / "data")
    for settings, words in (({"class_weights": "balanced"}, "class_weights is 'balanced'"),):
        local = Local(tmp_path, plan_of(data, **settings), data)
        house = local.houses[0]
        with pytest.raises(UserError, match=words):
            protection.settle(house.config, house.folder, house.data, Wishes(epsilon=1.0, spent="0"), print)
        assert not house.privacy.path.exists()
        protect(local, 0)
        with pytest.raises(UserError, match=words):
            local.houses[0].open(None)


def test_a_plan_promises_nothing_for_its_silos():
    with pytest.raises(UserError, match="each silo promises for itself"):
        make_plan(dp_epsilon=2.0)
    assert isinstance(make_plan(), Plan)


@pytest.mark.parametrize("private", [False, True])
def test_the_wish_reaches_the_app(federation, tmp_path, private):
    bundle = federation / "bundles" / NAMES[0]
    connect.command_of(bundle, tmp_path / "own.npz", private=private)
    told = tomllib.loads((bundle / "run/node.toml").read_text())
    assert app.house_of(SimpleNamespace(node_config=told)).private == private


def test_it_is_told_where_people_look(tmp_path, fedamp_command):
    local = Watched(tmp_path, ["able", "baker"], rounds=2, method="fedavg")
    bundle = local.bundle(0)
    assert fedamp_command("silo", "privacy", bundle)[1].startswith("nothing is promised about single samples")
    assert json.loads(fedamp_command("silo", "privacy", bundle, "--json")[1]) is None
    assert overview(bundle)["privacy"] is None
    protect(local, 0, limit=30.0)
    local.play()
    spent = PrivacyLedger(bundle / "run").account().spent
    code, out, _ = fedamp_command("silo", "privacy", bundle)
    assert code == 0
    for words in (
        "with epsilon 30 and delta 1e-05. It holds",
        "one has one sample more",
        f"Spent: epsilon {spent:.4g} of 30 is spent",
        f"Left: epsilon {30 - spent:.4g}",
        "Round 1, ",
        "Round 2, ",
        *NOT_COVERED,
    ):
        assert words in " ".join(out.split()), words
    numbers = json.loads(fedamp_command("silo", "privacy", bundle, "--json")[1])
    assert numbers["spent"] == spent
    assert numbers["left"] == pytest.approx(30 - spent)
    assert [line["round"] for line in numbers["rounds"]] == [1, 2]
    events = Counter({Event(each["rate"], each["noise"]): each["steps"] for each in numbers["events"]})
    assert epsilon(events, numbers["delta"]) == spent
    assert f"privacy: epsilon {spent:.4g} of 30 is spent" in " ".join(
        fedamp_command("silo", "status", bundle)[1].split()
    )
    assert json.loads(fedamp_command("silo", "status", bundle, "--json")[1])["privacy"]["spent"] == spent


def test_a_check_up_tells_what_is_promised_and_what_is_not_covered(federation, tmp_path):
    bundle, data = federation / "bundles" / NAMES[0], silo_data(tmp_path / "own.npz")

    def note() -> str:
        (found,) = (each for each in checkup.check(bundle, data, True) if each.what == "privacy")
        return found.note or f"fault: {found.fault}"

    assert note() == "nothing is promised about single samples; to protect them: fedamp silo up --dp-epsilon"
    ledger = PrivacyLedger(bundle / "run")
    ledger.begin(replace(PROMISE, limit=3.0), Before(), A_STEP)
    assert "epsilon 0 of 3 is spent, at delta 1e-05" in note()
    assert "not covered: how many samples the silo trains on" in note()
    ledger.path.write_text("{")
    assert note().startswith("fault: ")


def test_a_check_up_tells_what_would_be_promised_and_promises_nothing(federation, tmp_path, fedamp_command):
    bundle, data = federation / "bundles" / NAMES[0], silo_data(tmp_path / "own.npz")
    ledger = PrivacyLedger(bundle / "run")

    def line(*flags: str) -> str:
        code, out, err = fedamp_command("silo", "check", bundle, "--data", data, "--offline", *flags)
        assert code in (0, 2), err
        (found,) = (each for each in out.splitlines() if each[7:].startswith("privacy "))
        return found

    told = line("--dp-epsilon", "3", "--dp-delta", "1e-6", "--dp-spent", "0")
    assert told.startswith("ok ")
    assert "would be promised: epsilon 3, at delta 1e-06; epsilon 0 of 3 is spent" in told
    assert "enough for 2 rounds more;" in told  # those of the plan
    assert "not covered: how many samples" in told
    told = line("--dp-noise", "500", "--dp-spent", "0")
    assert "would be promised: no limit, as only --dp-noise is given" in told
    assert "warning: noise drowns what zebra-clinic could learn" in told
    assert not ledger.path.exists()
    told = line("--dp-epsilon", "3")
    assert told.startswith("fault")
    assert "state what these samples have spent before, --dp-spent EPSILON" in told
    ledger.begin(replace(PROMISE, limit=3.0), Before(), A_STEP)
    ledger.spend(1, A_STEP)
    before = ledger.path.read_bytes()
    told = line("--dp-epsilon", "4")
    assert f"would be promised: epsilon 4, at delta 1e-05; epsilon {ledger.account().spent:.4g} of 4 is spent" in told
    assert "warning: epsilon 3 was promised so far" in told
    assert "more like the last one" in told
    assert ledger.path.read_bytes() == before


@pytest.mark.parametrize("command", ["check", "up"])
def test_a_delta_alone_protects_nothing_and_is_refused(federation, tmp_path, fedamp_command, command):
    data = silo_data(tmp_path / "own.npz")
    words = ("silo", command, federation / "bundles" / NAMES[0], "--data", data, "--dp-delta", "1e-5")
    code, _, err = fedamp_command(*words)
    assert code == 2
    assert err == ("fedamp: --dp-delta without --dp-epsilon or --dp-noise: nothing is protected; give one of them\n")


def test_a_silo_with_nothing_left_says_so_at_once_and_wherever_people_look(settled, fedamp_command):
    expected = settled(epsilon=3.0, spent="0").account().expected
    assert "is spent, at delta 1e-05; enough for 2 rounds more" in settled.said
    assert "warning: not enough" not in settled.said
    for k in (1, 2):
        settled.ledger.spend(k, expected)
    with pytest.raises(UserError):
        settled.ledger.spend(3, expected)
    settled(epsilon=3.0)
    words = (
        "not enough is left for another round: this silo trains no more, unless its operator allows more than epsilon 3"
    )
    assert [each for each in settled.said.splitlines() if "not enough" in each] == [
        f"warning: {words} (fedamp silo up --dp-epsilon)"
    ]
    assert overview(settled.bundle)["privacy"]["rounds_left"] == 0
    assert words in live.look(settled.bundle).values["lead"]
    assert words in " ".join(fedamp_command("silo", "status", settled.bundle)[1].split())
    settled(epsilon=4.0)
    assert "not enough" not in settled.said
    assert words not in live.look(settled.bundle).values["lead"]


def test_a_promise_below_what_is_spent_is_refused(settled):
    """It stood in the ledger as if it had been kept."""
    expected = settled(epsilon=3.0, spent="0").account().expected
    settled.ledger.spend(1, expected)
    spent = settled.ledger.account().spent
    before = settled.ledger.path.read_bytes()
    with pytest.raises(UserError, match=rf"--dp-epsilon is 0.1, but epsilon {spent:.4g} is spent already"):
        settled(epsilon=0.1)
    assert settled.ledger.path.read_bytes() == before
    assert settled(epsilon=spent + 0.01).account().promise.limit == spent + 0.01  # less than before, and still true


def test_what_was_trained_before_the_ledger_began_is_not_gone_on_with(settled):
    memory = settled.bundle / "run" / "memory"
    memory.mkdir(parents=True)
    (memory / "state-0000003.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="perhaps unprotected"):
        settled(epsilon=3.0, spent="1.5")
    (memory / "state-0000003.safetensors").unlink()
    assert settled(epsilon=3.0, spent="1.5").account().before == Before(1.5, 1e-5)


def test_a_delta_that_is_too_large_and_noise_that_drowns_all_are_said(settled):
    settled(noise=500.0, delta=0.2, spent="0")
    assert "warning: dp_delta is 0.2, and able has up to" in settled.said
    assert "warning: noise drowns what able could learn" in settled.said


def test_what_is_infinite_is_not_promised(settled, monkeypatch):
    with pytest.raises(UserError, match=r"with noise 1e-05 .* epsilon is infinite, which .* more --dp-noise, say 1"):
        settled(noise=1e-5, spent="0")
    assert not settled.ledger.path.exists()
    ledger = settled(noise=2.0, spent="0")
    ledger.spend(1, ledger.account().expected)
    before, endless = ledger.account(), Counter({Event(0.1, 1e-5): 1})
    with pytest.raises(UserError, match="give a larger --dp-delta, say 1e-12"):
        settled(noise=2.0, delta=1e-17)
    assert ledger.account() == before
    with pytest.raises(UserError, match="epsilon is infinite"):
        ledger.spend(2, endless)
    assert ledger.account() == replace(before, unfitting=endless)
    monkeypatch.setattr("fedamp.privacy.account.available", lambda: False)  # then nobody can tell how much it is
    settled(noise=1e-5)
    assert "warning: noise of 1e-05 times the clip protects nobody" in settled.said


def test_rows_so_few_that_one_more_would_move_others_can_not_be_protected(tmp_path):
    """Of two different rows, repeated, both lots may be above the share: then the smaller one is held out instead."""
    np.savez(tmp_path / "own.npz", x=np.repeat(np.eye(2, 4), 40, axis=0), y=np.arange(80) % 3)
    able = SiloConfig(make_plan(model="logistic"), "able", 0, "nowhere:1")
    sides = {}
    for seed in range(12):
        lots = kept_setup(_seeded(able, seed), tmp_path / "own.npz", False).clients
        u = lots.lots(torch.cat([lots.train[0], lots.test[0]]), seed, "test")
        sides[seed] = bool((u < 0.2).any() and not (u < 0.2).all())
    assert {*sides.values()} == {True, False}
    for seed, by_themselves in sides.items():
        refusal = pytest.raises(UserError, match="one row more could move others")
        with contextlib.nullcontext() if by_themselves else refusal:
            kept_setup(_seeded(able, seed), tmp_path / "own.npz", False, private=True)


def _seeded(silo: SiloConfig, seed: int) -> SiloConfig:
    return replace(silo, plan=replace(silo.plan, config=replace(silo.plan.config, seed=seed)))
