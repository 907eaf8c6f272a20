"""`--then-alone`: after the last round each client goes on alone, as far as held-out samples say that it helps."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedamp
from fedamp.config import RunConfig
from fedamp.methods.base import descent
from fedamp.records.take_home import THEN_ALONE
from fedamp.rows import Rows
from fedamp.runs.memory.needs import in_words, needs
from fedamp.runs.setup import assemble
from fedamp.training.evaluate import evaluate
from runs.test_resume import assert_same_run

QUICK = {"clients": 5, "rounds": 3, "epochs": 1, "validation": 0.25, "progress": False}


def silos(count, spread, seed, rows=100):
    """Return silos of one rule, or of rules that are related: the common one and so much of its own."""
    g = np.random.default_rng(seed)
    common, made = g.normal(size=8), []
    for _ in range(count):
        x = g.normal(size=(rows + 300, 8)).astype(np.float32)
        y = (x @ (common + spread * g.normal(size=8)) > 0).astype(np.int64)
        made.append((x[:rows], y[:rows], x[rows:], y[rows:]))
    return made


def pooled_accuracy(setup, rows):
    """Return the accuracy on all clients' held-out samples together, in percent."""
    sizes = np.array([len(held) for held in setup.clients.validation])
    return (
        100
        * float(np.dot(evaluate(setup.trainer, setup.clients, rows, "validation").metric.numpy(), sizes))
        / sizes.sum()
    )


@pytest.mark.parametrize("method", ["separate", "fedavg", "fedamp", "autoamp"])
def test_it_is_local_training_by_hand_from_what_was_chosen(method):
    """The rounds' minibatches are those that Separate would have in the rounds after the last one."""
    before = fedamp.run(**QUICK, method=method, take_home="chosen")
    after = fedamp.run(**QUICK, method=method, then_alone=4)
    setup = assemble(RunConfig(**{name: value for name, value in QUICK.items() if name != "progress"}, method=method))
    rows, scores, stacks = before.taken, [], []
    for k in range(4, 8):
        rows = setup.trainer.local(setup.clients, k).run(rows, descent)
        stacks.append(rows)
        scores.append(pooled_accuracy(setup, rows))
    told = after.then_alone
    assert (told.entry, told.round) == (before.take_home.entry, before.take_home.round)
    assert told.held_out == pytest.approx(scores)
    means = [100 * float(evaluate(setup.trainer, setup.clients, each, "test").metric.mean()) for each in stacks]
    assert told.test == pytest.approx(means)
    assert told.taken > 0, "these runs are too short to have come to an end"
    assert after.take_home.entry == THEN_ALONE
    assert after.take_home.round == 3 + told.taken
    assert torch.equal(after.taken.params, stacks[told.taken - 1].params)
    assert after.take_home.mean == pytest.approx(told.test[told.taken - 1])


def test_nothing_else_of_the_run_changes(tmp_path):
    one, two = (fedamp.run(**QUICK, method="fedamp", out=tmp_path / str(k), then_alone=k) for k in (0, 3))
    assert len(one.history) == len(two.history)
    for ours, theirs in zip(one.history, two.history, strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}
    assert one.summary == two.summary
    files = [load_file(tmp_path / str(k) / "models.safetensors") for k in (0, 3)]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(files[0][name], files[1][name]) for name in files[0])
    assert "then_alone" not in one.to_dict()
    assert "then_alone" not in one.config.to_dict()  # a run of an earlier version is still the same run


@pytest.mark.parametrize("method", ["autoamp", "fedavg"])
def test_where_rules_are_related_it_is_better_than_together_and_than_alone(method):
    """Silos that nothing was chosen on."""
    settings = {"rounds": 20, "batch_size": 20, "validation": 0.2, "progress": False, "take_home": "chosen"}
    clients = silos(8, 0.5, seed=71)
    together, further, alone = (
        fedamp.run(clients=clients, method=name, then_alone=rounds, **settings)
        for name, rounds in ((method, 0), (method, 20), ("separate", 20))
    )
    assert further.then_alone.taken > 0
    assert further.chosen.validation > together.chosen.validation
    assert further.take_home.mean > together.take_home.mean
    assert further.take_home.mean > alone.take_home.mean


def test_where_nobody_differs_the_model_of_all_is_kept():
    result = fedamp.run(
        clients=silos(8, 0.0, seed=72), method="autoamp", rounds=25, batch_size=20, validation=0.2, then_alone=10
    )
    assert result.then_alone.taken == 0
    assert result.take_home.entry != THEN_ALONE
    assert max(result.then_alone.held_out) <= result.take_home.held_out[result.take_home.entry].score
    assert "none of 10 rounds" in result.then_alone.in_words


def test_more_rounds_alone_never_lower_the_held_out_score():
    scores = [fedamp.run(**QUICK, method="fedamp", then_alone=k).chosen.validation for k in (1, 2, 5)]
    assert scores == sorted(scores)


def test_errors_are_chosen_when_lowest():
    g = np.random.default_rng(5)
    clients = [
        ((x := g.normal(size=(60, 3)).astype(np.float32)), x @ g.normal(size=3).astype(np.float32)) for _ in range(3)
    ]
    result = fedamp.run(clients=clients, model="mlp", method="fedavg", rounds=3, validation=0.2, then_alone=8)
    told = result.then_alone
    assert result.summary.metric == "rmse"
    assert told.taken == 1 + int(np.argmin(told.held_out))
    assert told.held_out[told.taken - 1] < told.held_out[0]


def test_the_poisoned_have_no_say_and_nobody_is_absent():
    settings = {**QUICK, "method": "fedavg", "absent": 0.5, "then_alone": 2}
    told = fedamp.run(**settings, poisoned=(1,)).then_alone
    setup = assemble(RunConfig(**{k: v for k, v in settings.items() if k != "progress"}, poisoned=(1,)))
    start = fedamp.run(**{**settings, "then_alone": 0}, poisoned=(1,), take_home="chosen").taken
    rows = setup.trainer.local(setup.clients, 4).run(start, descent)
    keep = torch.tensor([0, 2, 3, 4])
    rest = setup.clients.take(keep)
    scores = evaluate(setup.trainer, rest, Rows(rows.params[keep], rows.buffers[keep]), "validation").metric.numpy()
    sizes = np.array([len(held) for held in rest.validation])
    assert told.held_out[0] == pytest.approx(100 * np.dot(scores, sizes) / sizes.sum())


def test_what_is_trained_alone_beside_it_is_trained_equally_long():
    """Up to the last round alone it is Separate, bit for bit, and held-out samples choose among as many rounds."""
    beside = fedamp.run(**QUICK, method="fedavg", alone=True, then_alone=4)
    separate = fedamp.run(**{**QUICK, "rounds": 7}, method="separate")
    ours, theirs = beside.best_models["alone"], separate.best_models["own"]
    assert (ours.round, ours.validation, ours.scores) == (theirs.round, theirs.validation, theirs.scores)
    assert ours.round > 3, "these runs are too short to have come to an end"
    assert torch.equal(ours.models.params, theirs.models.params)
    assert (beside.alone.alone.round, beside.alone.home.round) == (ours.round, beside.take_home.round)


@pytest.mark.parametrize("method", ["fedavg", "autoamp"])
def test_newcomers_go_on_as_the_others_do(method, tmp_path):
    settings = {**QUICK, "clients": 6, "method": method, "then_alone": 6}
    run = fedamp.run(**settings, newcomers=1, out=tmp_path / "run")
    (late,) = run.newcomers.each
    assert late.entry == THEN_ALONE
    assert late.chosen > late.own
    assert late.round > late.rounds
    assert "trained on alone" in late.takes_home
    assert (late.weights is None) == (method == "fedavg")


def test_who_joins_without_held_out_samples_has_nobody_to_say_when_to_stop(tmp_path):
    fedamp.run(clients=silos(3, 0.5, 1), method="autoamp", rounds=2, validation=0.2, then_alone=2, out=tmp_path / "run")
    (x, y, *_) = silos(1, 0.5, 2)[0]
    with_some, without = (fedamp.join(tmp_path / "run", (x, y), validation=share) for share in (None, 0.0))
    assert len(with_some.then_alone.held_out) == 2
    assert without.then_alone is None


def stop_at(k):
    """Return an observer that stops a run when a round was played, or was gone on alone."""

    def stop(line):
        if line["round"] == k and ("present" in line or THEN_ALONE in line["test"]):
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_ctrl_c_in_a_round_alone_leaves_what_was_learned_together_and_goes_on(k, tmp_path, fedamp_command):
    settings = {**QUICK, "method": "autoamp", "then_alone": 3, "alone": True}
    fedamp.run(**settings, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fedamp.run(**settings, out=tmp_path / "broken", observer=stop_at(k))
    assert not json.loads((tmp_path / "broken" / "result.json").read_text())["finished"]
    before = fedamp.run(**{**settings, "then_alone": 0, "rounds": min(k, 3)}, take_home="chosen")
    assert torch.equal(fedamp.load(tmp_path / "broken").taken.params, before.taken.params)
    assert fedamp_command("export", str(tmp_path / "broken"), "--client", "0", "--out", str(tmp_path / "e"))[0] == 0
    seen = []
    fedamp.run(**settings, out=tmp_path / "broken", observer=lambda line: seen.append(line["round"]))
    assert min(seen) > min(k, 3)  # no round is played twice that had been saved
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_the_rounds_alone_are_seen_in_order_and_after_the_last_models():
    lines, views = [], []
    fedamp.run(**QUICK, method="fedamp", then_alone=2, observer=lines.append, on_round=views.append)
    assert [line["round"] for line in lines] == [0, 1, 2, 3, 4, 4, 5]
    assert [set(line["test"]) for line in lines[-3:]] == [{"received"}, {THEN_ALONE}, {THEN_ALONE}]
    assert [view.round for view in views] == [1, 2, 3]


def test_who_ends_the_run_after_its_last_round_prevents_them(tmp_path):
    settings = {**QUICK, "method": "fedamp", "then_alone": 2, "out": tmp_path / "run"}
    early = fedamp.run(**settings, on_round=lambda line: line.round < 3)
    assert early.then_alone is None
    assert not json.loads((tmp_path / "run" / "result.json").read_text())["finished"]
    assert fedamp.run(**settings).then_alone == fedamp.run(**{**settings, "out": None}).then_alone


def test_a_run_that_was_ended_early_has_not_come_to_it(tmp_path):
    settings = {**QUICK, "method": "fedamp", "then_alone": 2, "out": tmp_path / "run"}
    early = fedamp.run(**settings, on_round=lambda line: line.round < 2)
    assert early.then_alone is None
    assert early.take_home.entry != THEN_ALONE
    assert fedamp.run(**settings).then_alone == fedamp.run(**{**settings, "out": None}).then_alone


def test_the_record_is_read_again_and_exported(tmp_path, fedamp_command):
    result = fedamp.run(**QUICK, method="fedamp", then_alone=3, out=tmp_path / "run")
    again = fedamp.load(tmp_path / "run")
    assert again.then_alone == result.then_alone
    assert again.take_home == result.take_home
    assert torch.equal(again.chosen.models.params, result.taken.params)
    code, *_ = fedamp_command("export", str(tmp_path / "run"), "--client", "2", "--out", str(tmp_path / "two"))
    assert code == 0
    told = json.loads((tmp_path / "two.json").read_text())
    assert (told["entry"], told["score"]["round"]) == (THEN_ALONE, result.take_home.round)
    assert told["score"]["test"] == pytest.approx(result.take_home.scores[2])


def test_a_comparison_says_who_went_on_alone(tmp_path, fedamp_command):
    shared = ("--clients", "5", "--rounds", "2", "--epochs", "1", "--validation", "0.2", "--then-alone", "2")
    methods = ("fedavg", "fedavg-ft", "separate")  # the first two have the same rounds, and each its own choice
    code, out, _ = fedamp_command("compare", "--methods", ",".join(methods), *shared, "--out", str(tmp_path / "c"))
    assert code == 0
    assert out.count("then alone") == 3
    for name in methods:
        (folder,) = tmp_path.glob(f"c/{name}-seed0")
        told = json.loads((folder / "result.json").read_text())
        alone = fedamp.run(method=name, clients=5, rounds=2, epochs=1, validation=0.2, then_alone=2, progress=False)
        assert told["take_home"]["mean"] == pytest.approx(alone.take_home.mean)
        assert told["then_alone"]["held_out"] == pytest.approx(alone.then_alone.held_out)


def test_a_run_says_what_came_of_it(tmp_path, fedamp_command):
    flags = ["--clients", "5", "--rounds", "2", "--validation", "0.2", "--then-alone", "3"]
    code, out, err = fedamp_command("run", *flags, "--out", str(tmp_path / "r"))
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert "own model, trained on alone" in words
    assert "3 rounds, from" in words


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--then-alone", "5"), "--validation"),
        (("--then-alone", "5", "--validation", "0.2", "--take-home", "scored"), "leave one of them out"),
        (("--then-alone", "5", "--validation", "0.2", "--dp-epsilon", "4"), "do not cover"),
        (("--then-alone", "-1", "--validation", "0.2"), "then_alone is -1"),
        (("--then-alon", "5"), "--then-alone"),
    ],
)
def test_mistakes_are_one_line(flags, words, fedamp_command):
    code, _, err = fedamp_command("run", *flags)
    assert (code, err.strip().count("\n")) == (2, 0)
    assert words in err


def test_its_rounds_are_counted_beforehand():
    config = RunConfig(**{name: value for name, value in QUICK.items() if name != "progress"})
    longer = RunConfig(**{name: value for name, value in QUICK.items() if name != "progress"}, then_alone=6)
    passes = [needs(each, assemble(each)).passes for each in (config, longer)]
    assert passes[1] == 3 * passes[0]
    beside = RunConfig(**{name: value for name, value in QUICK.items() if name != "progress"}, then_alone=6, alone=True)
    need = needs(beside, assemble(beside))
    assert need.passes == 2 * passes[1]
    lines, _ = in_words(need, beside, assemble(beside))
    assert any("in 3 rounds and 6 alone, half of them for" in line for line in lines)


def test_where_nothing_can_be_chosen_a_warning_says_so():
    """No model has a score on held-out samples by which it could be chosen."""
    metric = fedamp.Metric("half", lambda outputs, targets: float("nan"), True)
    with pytest.warns(fedamp.FedampWarning, match="nobody went on alone"):
        result = fedamp.run(**{**QUICK, "rounds": 2}, method="fedavg", then_alone=2, metric=metric)
    assert result.then_alone is None
    assert result.take_home is None
