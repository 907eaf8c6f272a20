"""What a client sends is checked in the simulation as in a federation: lies are refused, honest clients are not."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import fedamp
from fedamp.config import RunConfig
from fedamp.config.reply_limits import ReplyLimits
from fedamp.records.folder import RunFolder
from fedamp.rows import Rows
from fedamp.runs import reply_checks
from fedamp.runs.loop import play
from fedamp.runs.reply_checks import Measured
from fedamp.runs.round import play_round
from fedamp.runs.setup import assemble
from fedamp.runs.simulated_faults import poison
from helpers import SOME_AT_ONCE, Federation, assert_states_equal, silos

TALKING = [name for name in SOME_AT_ONCE if name != "separate" and "separate" not in getattr(name, "values", ())]
QUICK = {"rounds": 3, "epochs": 2, "clients": 9}
LIARS = (0, 4, 7)  # a third


def refused(result):
    """Return whose replies were refused, round by round."""
    played = [line for line in result.history if "present" in line]
    return [tuple(int(client) for client in line.get("refused", {})) for line in played]


# Lies


def test_ten_fold_flips_do_not_end_heurfedamp():
    clean = fedamp.run(method="heurfedamp", rounds=12)
    result = fedamp.run(method="heurfedamp", rounds=12, poisoned=(0, 5))
    assert refused(result) == [(0, 5)] * 12
    assert result.summary.last > clean.summary.last - 3


@pytest.mark.parametrize("model", ["logistic", "mlp", pytest.param("cnn-small", marks=pytest.mark.many)])
@pytest.mark.parametrize("method", TALKING)
def test_a_ten_fold_flip_is_refused_from_the_first_round_on(method, model):
    result = fedamp.run(method=method, model=model, poisoned=LIARS, **QUICK)
    assert refused(result) == [LIARS] * 3


SETTINGS = {
    "sgd": {"optimizer": "sgd", "lr": 0.1},
    "steps": {"epochs": None, "steps": 15},
    "own first models": {"init": "own"},
    "start at w": {"method": {"name": "fedamp", "start": "w"}, "init": "own"},
    "weight decay": {"weight_decay": 0.1},
    "dirichlet": {"setting": {"name": "dirichlet", "beta": 0.1, "min_samples": 5, "test_samples": 10}},
}


@pytest.mark.parametrize("which", SETTINGS)
def test_a_ten_fold_flip_is_refused_however_the_others_train(which):
    result = fedamp.run(**{**QUICK, "method": "heurfedamp", "poisoned": LIARS, **SETTINGS[which]})
    assert refused(result) == [LIARS] * 3


@pytest.mark.parametrize("method", ["fedavg", "fedamp"])
def test_where_few_are_there_a_liar_is_not_the_measure(method):
    result = fedamp.run(method=method, poisoned=(0, 4, 7), absent=0.7, **{**QUICK, "rounds": 12})
    lines = [line for line in result.history if "present" in line]
    here = [tuple(i for i in LIARS if line["present"][i]) for line in lines]
    assert any(len(liars) > sum(line["present"]) / 2 for liars, line in zip(here, lines, strict=True))
    assert refused(result) == here


@pytest.mark.parametrize("method", ["fedavg", "heurfedamp"])
def test_a_flip_three_times_as_large_is_refused_too(method):
    result = fedamp.run(method=method, poisoned=LIARS, poison_scale=3.0, **QUICK)
    assert refused(result) == [LIARS] * 3


@pytest.mark.parametrize("name", TALKING)
def test_who_is_refused_counts_as_absent(name):
    """To the server and to its own state: as if it had not been there."""
    lied, away = (Federation.of(name, own_init=True).play(2) for _ in range(2))
    num_params = lied.trainer.model.num_params
    everyone, others = torch.ones(4, dtype=torch.bool), torch.tensor([True, False, True, True])
    tamper = poison([1], 10.0, num_params)
    played = play_round(
        lied.method, lied.server, lied.state, 3, lambda who: round_3(lied, who), everyone, tamper, True, [1]
    )
    expected = play_round(away.method, away.server, away.state, 3, lambda who: round_3(away, who), others)
    assert list(played.refused) == [1]
    assert_states_equal(played.server, expected.server)
    assert_states_equal(played.clients, expected.clients)


def round_3(setup, who):
    return setup.trainer.local(setup.clients.take(who), 3)


def test_a_run_in_which_replies_are_refused_goes_on_bit_for_bit(tmp_path):
    config = RunConfig.of({"method": "fedamp", "poisoned": (0, 4), "absent": 0.4, **QUICK, "rounds": 6})
    whole = play(config, assemble(config))

    play(config, assemble(config), RunFolder(tmp_path), lambda line: line["round"] < 3)
    again = play(config, assemble(config), RunFolder(tmp_path))
    assert refused(again) == refused(whole)
    for entry, rows in whole.models.items():
        assert torch.equal(rows.params, again.models[entry].params)


@pytest.mark.parametrize("way", [{"method": "fedamp"}, {"method": "fedavg"}, {"method": "scaffold"}], ids=str)
def test_a_liar_with_few_samples_is_refused_among_those_with_many(way):
    """They move by more than the model is long in the first round; it sends ten models, flipped."""
    crowd = silos([1000] * 6 + [20] * 3)
    result = fedamp.run(clients=crowd, model="logistic", poisoned=(6, 7, 8), rounds=2, **way)
    assert refused(result) == [(6, 7, 8)] * 2


# Honest clients


def zeros(input_shape, num_outputs):
    layer = nn.Linear(input_shape[0], num_outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def normed(input_shape, num_outputs):
    return nn.Sequential(
        nn.Linear(input_shape[0], 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_outputs)
    )


CROWDS = {
    "few samples, and one with many": silos([20] * 6 + [1000]),
    "many samples, and one with few": silos([600] * 3 + [20]),
    "half and half": silos([20] * 3 + [600] * 3),
    "two": silos([20, 1000]),
    "one": silos([50]),
    "opposite groups": silos([60] * 6, opposite=[0, 2, 4]),
    "one that learns the opposite": silos([300] * 8, opposite=[3]),
}
WAYS = {
    "adam": {"method": "fedamp"},
    "adam, small steps": {"method": "fedavg", "lr": 1e-4},
    "sgd": {"method": "fedavg", "optimizer": "sgd", "lr": 0.1},
    "steps": {"method": "heurfedamp", "steps": 20},
    "scaffold": {"method": "scaffold", "lr": 0.01},
    "scaffold, steps": {"method": "scaffold", "lr": 0.01, "steps": 20},
    "apfl": {"method": {"name": "apfl", "adaptive": True}, "lr": 0.1},
    "strong pull": {"method": {"name": "fedamp", "alpha": 1e-4}},
}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(zeros, id="zeros"),  # the hardest: nothing was sent that a move could be compared with
        pytest.param("logistic", marks=pytest.mark.many),
        pytest.param(normed, marks=pytest.mark.many, id="BatchNorm"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.many
def test_an_honest_client_is_not_refused(crowd, way, model):
    result = fedamp.run(clients=CROWDS[crowd], model=model, rounds=3, replies="checked", **WAYS[way])
    assert refused(result) == [()] * 3


@pytest.mark.parametrize(
    "settings",
    [
        {"absent": 0.8, "rounds": 15},
        {"absent": 0.8, "rounds": 15, "method": {"name": "fedamp", "start": "w"}},
        {"init": "own", "method": {"name": "heurfedamp", "start": "w"}},
        {"label_noise": 0.8, "noisy_clients": (0, 1, 2)},
        {"setting": {"name": "dirichlet", "beta": 0.1, "min_samples": 5, "test_samples": 10}},
        {"method": "scaffold", "absent": 0.5, "rounds": 15},
        {"optimizer": "adam", "lr": 0.1},
    ],
    ids=str,
)
def test_an_honest_client_on_the_digits_is_not_refused(settings):
    result = fedamp.run(**{**QUICK, "replies": "checked", **settings})
    assert not any(refused(result))


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_client_whose_data_say_the_opposite_is_not_refused(method):
    """It turns the global model round in every round, while the others hardly move any more."""
    crowd = silos([300] * 10, opposite=[3])
    result = fedamp.run(
        clients=crowd, model="logistic", method=method, optimizer="sgd", lr=0.5, rounds=12, replies="checked"
    )
    assert not any(refused(result))


def test_a_client_with_a_longer_model_than_all_others_is_not_refused():
    """Its model was sent to it as long as that: what counts is how far it moves."""
    replied = {i: Measured({"w": 1.0}, {"w": 1.0}, {"w": 0.1}) for i in range(5)}
    replied[5] = Measured({"w": 100.0}, {"w": 99.5}, {"w": 3.0})
    assert reply_checks.refused(replied, ReplyLimits(), {}) == {}


# The rule itself


def measured(far, sent=1.0, steps=1.0):
    """Return a reply that was turned round: it lies on the other side of 0."""
    return Measured({"w": abs(far - sent)}, {"w": sent}, {"w": far}, steps)


def test_a_move_is_free_up_to_three_lengths_of_what_was_sent():
    for far, expected in ((2.99, []), (3.01, [4])):
        replied = {i: measured(0.01) for i in range(4)} | {4: measured(far)}
        assert list(reply_checks.refused(replied, ReplyLimits(), {})) == expected


def test_who_goes_on_may_go_further_than_who_turns_round():
    for far, expected in ((9.9, []), (10.1, [4])):
        on = Measured({"w": far + 1.0}, {"w": 1.0}, {"w": far})
        replied = {i: measured(1.0) for i in range(4)} | {4: on}
        assert list(reply_checks.refused(replied, ReplyLimits(), {}, [{"w": 100.0}] * 9)) == expected
        assert list(reply_checks.refused({**replied, 4: measured(far)}, ReplyLimits(), {}, [{"w": 100.0}] * 9)) == [4]


@pytest.mark.parametrize("shift", [20.0, 100.0])
@pytest.mark.parametrize("method", ["fedavg", "fedprox", "apfl", "scaffold", "fedamp", "heurfedamp"])
def test_a_client_whose_targets_lie_far_from_the_others_takes_part(method, shift):
    """Under SGD the others soon hardly move any more, and the global model is short: it has to fit both.

    From such a client a lie can't be told by its length. Where nobody is known to lie, nobody is refused.
    """
    g = torch.Generator().manual_seed(0)
    rule = torch.randn(5, generator=g)
    inputs = [torch.randn(60, 5, generator=g) for _ in range(10)]
    targets = [x @ rule + 0.1 * torch.randn(60, generator=g) + shift * (i == 9) for i, x in enumerate(inputs)]
    mean, spread = torch.cat(targets).mean(), torch.cat(targets).std()
    crowd = [(x, (y - mean) / spread) for x, y in zip(inputs, targets, strict=True)]
    lr = {} if method in ("apfl", "scaffold") else {"lr": 0.05}
    settings = {"clients": crowd, "model": "logistic", "method": method, "optimizer": "sgd", "rounds": 8, **lr}
    result = fedamp.run(**settings)
    assert not any(refused(result))
    assert result.history[-1]["test"] == fedamp.run(replies="any", **settings).history[-1]["test"]


def test_a_long_move_is_fine_where_the_others_move_as_far():
    for far, expected in ((11.9, []), (12.1, [4])):
        replied = {i: measured(3.0) for i in range(4)} | {4: measured(far, sent=1.0)}
        assert list(reply_checks.refused(replied, ReplyLimits(norm_factor=1e9), {})) == expected


def test_of_two_a_single_stranger_can_not_lift_the_median():
    assert list(reply_checks.refused({0: measured(0.1), 1: measured(11.0)}, ReplyLimits(), {})) == [1]


def test_who_takes_more_steps_may_go_further():
    few = {i: measured(1.0, sent=0.0, steps=10) for i in range(5)}
    for steps, most in ((10, 4), (40, 8), (300, 48), (1000, 160), (10**9, 160), (1, 4)):
        for far, expected in ((0.99 * most, []), (1.01 * most, [5])):
            replied = {**few, 5: measured(far, sent=0.0, steps=steps)}
            assert list(reply_checks.refused(replied, ReplyLimits(norm_factor=1e9), {})) == expected


def test_who_is_absent_counts_with_the_length_of_its_model():
    """Two liars alone are the median of their round; eight others are away."""
    liars = {i: measured(11.0) for i in range(2)}
    assert list(reply_checks.refused(liars, ReplyLimits(), {})) == []
    assert list(reply_checks.refused(liars, ReplyLimits(), {"w": [1.0] * 8})) == [0, 1]
    assert list(reply_checks.refused(liars, ReplyLimits(), {"w": [0.0] * 8})) == []  # zeros have no length to go by


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_measuring_changes_nothing_and_is_exact(dtype, monkeypatch):
    monkeypatch.setattr(reply_checks, "CACHED", 32)  # many blocks
    g = torch.Generator().manual_seed(0)
    u = Rows(torch.randn(4, 100, generator=g, dtype=dtype), torch.randn(4, 3, generator=g, dtype=dtype))
    w = Rows(u.params + 1e-3 * torch.randn(4, 100, generator=g, dtype=dtype), 2 * u.buffers)
    before = [t.clone() for t in (u.params, u.buffers, w.params, w.buffers)]
    method = Federation.of("fedamp").method
    found = reply_checks.measure({"w": w}, {"u": u}, method, torch.arange(1, 5)[:, None])
    assert all(torch.equal(a, b) for a, b in zip(before, (u.params, u.buffers, w.params, w.buffers), strict=True))
    for i, one in enumerate(found):
        assert one.far["w"] == pytest.approx(float((w.params[i].double() - u.params[i].double()).norm()), rel=1e-12)
        assert one.sent["w"] == pytest.approx(float(u.params[i].double().norm()), rel=1e-12)
        assert one.lengths["w.buffers"] == pytest.approx(float(w.buffers[i].double().norm()), rel=1e-12)
        assert one.steps == i + 1
    broken = w.params.clone()
    broken[2, 7] = torch.nan
    found = reply_checks.measure({"w": Rows(broken, w.buffers)}, {"u": u}, method, torch.ones(4, 1))
    assert [one is None for one in found] == [False, False, True, False]


def test_one_row_that_is_seen_many_times_is_measured_as_such():
    row = Rows.of(torch.tensor([[3.0, 4.0]]))
    w = Rows.of(torch.tensor([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]]))
    found = reply_checks.measure({"w": w}, {"w": row.repeat(3)}, Federation.of("fedavg").method, torch.ones(3, 1))
    assert [(one.far["w"], one.sent["w"], one.lengths["w"]) for one in found] == [(0, 5, 5), (5, 5, 0), (5, 5, 10)]


# The setting


def test_any_takes_every_reply_that_is_finite():
    checked, taken = (fedamp.run(method="fedavg", poisoned=LIARS, replies=word, **QUICK) for word in ("checked", "any"))
    assert refused(taken) == [()] * 3
    assert taken.summary.last < checked.summary.last - 10
    with pytest.raises(ValueError, match="unknown replies 'some'"):
        fedamp.run(replies="some", **QUICK)


def test_the_flag_of_run_and_compare(fedamp_command):
    flags = ("--rounds", 1, "--epochs", 1, "--clients", 9, "--poisoned", "0", "--replies", "any")
    code, _, err = fedamp_command("run", "--method", "fedavg", *flags, "--json", "--out", "here")
    assert code == 0, err
    assert json.loads(Path("here/description.json").read_text())["replies"] == "any"
    code, _, err = fedamp_command("compare", "--methods", "fedavg", *flags, "--out", "there")
    assert code == 0, err
    assert {json.loads(p.read_text())["replies"] for p in Path("there").rglob("description.json")} == {"any"}


def test_the_robustness_table_is_measured_without_the_check():
    from paper import experiments

    assert experiments.TROUBLES["poisoned"]["replies"] == "any"


# What is told


def test_of_a_poisoned_client_it_is_told_that_it_is_meant():
    (warning,) = fedamp.run(method="fedamp", poisoned=LIARS, **QUICK).warnings
    assert "the reply of client 0, 4, 7 is refused, and its sender counts as absent" in warning
    assert "poisoned on purpose" in warning
    assert "learning rate" not in warning


def test_a_poisoned_client_whose_model_is_not_finite_does_not_need_a_lower_learning_rate():
    result = fedamp.run(method="heurfedamp", poisoned=(0,), poison_scale=1e38, replies="any", **QUICK)
    of_it = [warning for warning in result.warnings if "client 0 is not finite" in warning]
    assert of_it
    assert all("poisoned on purpose" in warning for warning in of_it)
    assert not any("learning rate" in warning for warning in result.warnings)


def test_whom_poison_reached_is_told_so():
    result = fedamp.run(method="fedavg", poisoned=(0,), poison_scale=1e30, replies="any", **QUICK)
    reached = [warning for warning in result.warnings if "client 1, " in warning]
    assert reached
    assert all("What the poisoned clients send may have reached it" in warning for warning in reached)


def test_an_honest_client_that_runs_away_gets_a_cure():
    """One client's inputs are a million times as large: under SGD its model runs away in the first round."""
    crowd = silos([60] * 6)
    crowd[2] = (1e6 * crowd[2][0], *crowd[2][1:])
    result = fedamp.run(
        clients=crowd, model="logistic", method="fedavg", optimizer="sgd", lr=0.1, rounds=2, replies="checked"
    )
    assert refused(result) == [(2,)] * 2
    (warning,) = [warning for warning in result.warnings if "client 2 is refused" in warning]
    assert "Lower the learning rate" in warning
    assert "replies=any" in warning
    assert "poisoned" not in warning


def test_losses_of_two_entries_are_told_together():
    a = Federation.of("apfl")
    a.clients.x[a.clients.train[1][0]] = torch.nan
    events = a.play().rounds[-1].diagnostics["events"]
    assert sum("training loss" in event for event in events) == 1
