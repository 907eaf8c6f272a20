"""A private run keeps within what was asked for, counts what was done, and says it."""

import itertools
import math

import pytest
import torch
from test_resume import StopHere, assert_same_run

import fedamp
from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.privacy import account
from fedamp.privacy.promise import Privacy
from fedamp.records.privacy import Promised, epsilon_now, rounded_up, spent_in
from fedamp.records.reading import read_run
from fedamp.report.privacy import privacy_note
from fedamp.runs import protection
from fedamp.runs.loop import play
from fedamp.runs.setup import assemble

pytestmark = pytest.mark.many
"""Run after the fast tests, on all cores: these train."""

pytest.importorskip("dp_accounting")

QUICK = {"model": "logistic", "batch_size": 10, "epochs": 1, "rounds": 3}


def people(*sizes):
    draws = torch.Generator().manual_seed(1)
    pairs = [(torch.randn((size, 4), generator=draws), torch.arange(size) % 2) for size in sizes]
    return [(x, y, x[:9], y[:9]) for x, y in pairs]


def run(*sizes, **settings):
    return fedamp.run(clients=people(*(sizes or (60, 40, 25))), progress=False, **{**QUICK, **settings})


@pytest.mark.parametrize("method", ["separate", "apfl", "autoamp", "fedala"])
def test_all_rounds_together_spend_what_was_asked_for(method):
    result = run(method=method, dp_epsilon=3.0, dp_delta=1e-4)
    assert all(3 * (1 - 2 * account.CLOSE) <= each <= 3 for each in result.epsilon)
    promised = Promised.of(result.facts.privacy)
    assert (promised.epsilon, promised.delta, promised.clip) == (3.0, 1e-4, 1.0)
    assert promised.rates == [10 / 60, 10 / 40, 10 / 25]
    assert promised.noise == sorted(promised.noise)  # who has fewer samples needs more
    assert "dp-accounting" in promised.accountant
    by_round = [line["epsilon"] for line in result.history if "epsilon" in line]
    assert len(by_round) == 3
    assert all(a < b for before, now in itertools.pairwise(by_round) for a, b in zip(before, now, strict=True))
    assert result.privacy == ("epsilon 3.00 at delta 0.0001 for every client's single samples (add or remove one)")


def test_epsilon_is_counted_from_what_was_done():
    """The lines hold the steps themselves: whoever doubts the library can take another."""
    result = run(method="ditto", dp_noise=1.5)
    steps = spent_in(result.history, 3)
    assert [sum(each.values()) for each in steps] == [3 * 2 * 6, 3 * 2 * 4, 3 * 2 * 3]
    assert {event.noise for each in steps for event in each} == {1.5}
    assert result.epsilon == [account.epsilon(each, 1e-5) for each in steps]
    assert Promised.of(result.facts.privacy).epsilon is None
    least, most = (rounded_up(pick(result.epsilon)) for pick in (min, max))
    assert result.privacy.startswith(f"epsilon {least} to {most} at delta 1e-05 for clients' single samples")
    assert all(f"client {i} {rounded_up(each)}" in result.privacy for i, each in enumerate(result.epsilon))


def test_the_plan_is_what_is_spent_with_absent_clients_too():
    config = RunConfig(method="autoamp", dp_epsilon=2.0, absent=0.4, seed=3, setting="iid", clients=4, **QUICK)
    setup = assemble(config)
    result = play(config, setup)
    plain = setup.trainer.changed(privacy=None)
    present = {line["round"]: torch.tensor(line["present"]) for line in result.history if "present" in line}
    plan = protection.planned(config, setup.method, plain, setup.clients, setup.w, present.__getitem__)
    noise = setup.trainer.config.privacy.noise
    for i, (mine, spent) in enumerate(zip(plan, spent_in(result.history, 4), strict=True)):
        wanted = account.scaled(mine, noise[i])
        assert sorted(spent.values()) == sorted(wanted.values())
        assert sorted(spent) == pytest.approx([pytest.approx(event) for event in sorted(wanted)])
    assert not all(mask.all() for mask in present.values())
    assert all(each is None or each <= 2 for each in result.epsilon)


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_run_counts_on(after, tmp_path):
    settings = {"method": "apfl", "dp_epsilon": 2.0, "setting": "iid", "clients": 3, **QUICK, "rounds": 4}

    def stop(line):
        if line.round == after:
            raise StopHere

    with pytest.raises(StopHere):
        fedamp.run(**settings, out=tmp_path / "broken", on_round=stop, progress=False)
    whole = fedamp.run(**settings, out=tmp_path / "whole", progress=False)
    again = fedamp.run(**settings, out=tmp_path / "broken", progress=False)
    assert_same_run(tmp_path / "broken", tmp_path / "whole")
    assert again.epsilon == whole.epsilon == epsilon_now(read_run(tmp_path / "whole").lines)
    read = fedamp.load(tmp_path / "whole")
    assert (read.epsilon, read.privacy) == (whole.epsilon, whole.privacy)


def test_a_reply_that_is_refused_has_left_all_the_same():
    settings = {"setting": "iid", "clients": 10, "method": "fedavg", "poisoned": (0,), "poison_scale": 1e4}
    result = fedamp.run(**{**QUICK, **settings}, dp_noise=2.0, progress=False)
    assert any("0" in line.get("refused", {}) for line in result.history)
    assert 0 < result.epsilon[0] == pytest.approx(result.epsilon[1], rel=0.2)


def test_who_spends_more_than_asked_is_warned(monkeypatch):
    """As if the rehearsal had missed every second step."""
    honest = protection.rehearse

    def half(*args):
        return [type(each)({event: count // 2 for event, count in each.items()}) for each in honest(*args)]

    monkeypatch.setattr(protection, "rehearse", half)
    with pytest.warns(fedamp.FedampWarning, match="client 0 has spent more than epsilon 3"):
        result = run(method="separate", dp_epsilon=3.0)
    assert min(result.epsilon) > 3
    assert len([text for text in result.warnings if "has spent more" in text]) == 3  # once for each client


def test_next_to_no_noise_protects_nobody(tmp_path):
    with pytest.warns(fedamp.FedampWarning, match="noise of 1e-05 times the clip protects nobody: epsilon is infinite"):
        result = run(method="separate", dp_noise=1e-5, out=tmp_path / "run")
    assert result.privacy.startswith("epsilon infinite at delta 1e-05")
    assert privacy_note([read_run(tmp_path / "run")]).endswith(
        "epsilon at most infinite at delta 1e-05 for every client's single samples (add or remove one)."
    )


def test_what_is_not_protected_says_nothing_of_it():
    result = run(method="separate")
    assert result.epsilon is result.privacy is result.facts.privacy is None
    assert not any({"epsilon", "spent"} & set(line) for line in result.history)
    assert "epsilon" not in result.to_dict()
    assert "privacy" not in result.to_dict()["facts"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dp_epsilon": 0}, "dp_epsilon is 0"),
        ({"dp_epsilon": math.inf}, "dp_epsilon is inf"),
        ({"dp_noise": -1}, "dp_noise is -1"),
        ({"dp_epsilon": 1, "dp_clip": 0}, "dp_clip is 0; expected a number from 1e-06 to 1e\\+06, about the length"),
        ({"dp_epsilon": 1, "dp_clip": 1e300}, "dp_clip is 1e\\+300; expected"),
        ({"dp_epsilon": 1, "dp_clip": 1e-300}, "dp_clip is 1e-300; expected"),
        ({"dp_epsilon": 1, "dp_clip": math.nan}, "dp_clip is nan; expected"),
        ({"dp_epsilon": 1, "dp_delta": 0}, "dp_delta is 0"),
        ({"dp_epsilon": 1, "dp_delta": 1}, "dp_delta is 1; expected a number below 1"),
        ({"dp_epsilon": 1, "dp_noise": 1}, "but one follows from the other: leave one of them out"),
        ({"dp_clip": 2}, "dp_clip is 2, but nothing would be protected: give --dp-epsilon"),
        ({"dp_delta": 1e-6}, "dp_delta is 1e-06, but nothing would be protected"),
        ({"dp_noise": 1, "class_weights": "balanced"}, "how many samples of each class"),
        ({"dp_noise": 1, "take_home": "chosen", "validation": 0.2}, "--take-home scored"),
    ],
)
def test_what_can_not_be_promised_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        RunConfig(**settings)


@pytest.mark.parametrize("given", [{"dp_delta": 1e-5}, {"dp_clip": 1.0}, {"dp_delta": 1e-6}])
def test_details_of_privacy_without_privacy_are_refused_even_at_their_defaults(given, tmp_path, fedamp_command):
    ((name, value),) = given.items()
    words = f"{name} is {value}, but nothing would be protected: give --dp-epsilon, say 4, or --dp-noise too"
    for act in (fedamp.run, fedamp.compare):
        with pytest.raises(UserError) as told:
            act(data="digits", clients=3, rounds=1, **given)
        assert str(told.value) == words
    flag = (f"--{name.replace('_', '-')}", str(value))
    (tmp_path / "plan.toml").write_text(f"{name} = {value}\n")
    for command in (
        ("run", "--data", "digits", *flag),
        ("run", "--data", "digits", "--config", tmp_path / "plan.toml"),
        ("compare", "--data", "digits", *flag, "--out", tmp_path / "c"),
        ("audit", "--data", "digits", *flag),
    ):
        code, _, err = fedamp_command(*command)
        assert (code, err) == (2, f"fedamp: {words}\n"), command


def test_held_out_samples_choose_nothing_by_themselves():
    """AutoAMP's own way is to let them choose."""
    plain, private = (run(method="autoamp", validation=0.2, **more) for more in ({}, {"dp_noise": 1.0}))
    assert (plain.take_home.rule, private.take_home.rule) == ("chosen", "scored")


def test_a_delta_that_allows_to_give_away_a_sample_is_warned():
    with pytest.warns(fedamp.FedampWarning, match=r"dp_delta is 0.02, and client 0 has up to 60 samples.*below 0.017"):
        run(60, 40, method="separate", dp_noise=1.0, dp_delta=0.02)


def test_noise_that_drowns_everything_is_warned_with_a_cure():
    with pytest.warns(fedamp.FedampWarning, match=r"noise drowns what client 0, client 1 .* \(--batch-size\)"):
        run(60, 40, method="separate", dp_epsilon=0.1)


def test_without_the_library_noise_still_works_and_epsilon_is_not_known(monkeypatch):
    monkeypatch.setattr(account, "available", lambda: False)
    with pytest.warns(fedamp.FedampWarning, match=r"epsilon is not known, .* pip install 'fedamp\[privacy\]'"):
        result = run(method="separate", dp_noise=1.0)
    assert result.epsilon is None
    assert result.privacy.startswith("epsilon is not known")
    assert sum(spent_in(result.history, 3)[0].values()) == 3 * 6  # what to count once there is a library
    with pytest.raises(UserError, match=r"dp_epsilon is 4, .* not installed: pip install 'fedamp\[privacy\]'"):
        run(method="separate", dp_epsilon=4)


def test_newcomers_are_protected_too():
    config = RunConfig(method="fedavg", dp_epsilon=2.0, newcomers=1, setting="iid", clients=4, **QUICK)
    setup = assemble(config)
    (late,) = setup.newcomers
    (number,) = late.clients.numbers
    assert number not in setup.trainer.config.privacy.noise
    privacy = late.trainer.config.privacy
    assert isinstance(privacy, Privacy)
    assert list(privacy.noise) == [number]
    assert len(Promised.of(late.facts.privacy).noise) == 1
    result = play(config, setup)
    assert result.newcomers is not None
    assert max(result.epsilon) <= 2


def test_epsilon_in_words():
    promised = Promised(1.0, 1e-5, 4.0, [1.0, 2.0], [0.1, 0.1], "add-or-remove", "poisson", "a library")
    assert promised.words([3.991, 3.9999]).startswith("epsilon 4.00 at delta 1e-05 for every client's")
    assert promised.words([1.0, 2.5], ["a", "b"]).endswith("(add or remove one): a 1.00, b 2.50")
    assert promised.words([1.0] * 8 + [2.5]).endswith(": the most by client 8")
    assert promised.words(None).startswith("epsilon is not known: no library has counted it")
    assert promised.words([None, 1.0]).startswith("epsilon 1.00 to infinite at delta 1e-05")  # as JSON has it
    assert promised.words([None] * 2).startswith("epsilon infinite at delta 1e-05 for every client's")
    assert promised.plan == (
        "epsilon 4 at delta 1e-05: noise 1 to 2 times the clip of 1, each sample in a minibatch with a chance of 0.1"
    )
    assert Promised.of({**promised.to_dict(), "weather": "fine"}) == promised
