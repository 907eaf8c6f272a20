"""`--alone`: the same run with Separate's models beside it, and a warning for whoever is worse off than with them."""

import json

import pytest
import torch

import fedamp
from fedamp.config import RunConfig
from fedamp.records.beside_alone import BesideAlone
from fedamp.runs.memory.needs import needs
from fedamp.runs.setup import assemble
from helpers import SOME_AT_ONCE, silos

QUICK = {"clients": 6, "rounds": 3, "epochs": 1, "validation": 0.3, "absent": 0.2, "init": "own"}
SGD = {"optimizer": "sgd", "lr": 0.05}


def without(entry, history):
    """Return the rounds' lines without one entry, and without the seconds that were measured."""
    kept = []
    for line in history:
        line = {key: value for key, value in line.items() if key not in ("seconds", f"train_loss_{entry}")}
        for on in ("test", "validation"):
            line[on] = {name: scores for name, scores in line[on].items() if name != entry}
        kept.append(line)
    return kept


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_the_entry_alone_is_the_run_of_separate(engine):
    separate = fedamp.run(method="separate", engine=engine, **SGD, **QUICK)
    for name in ("scaffold", "fedamp", "autoamp"):
        beside = fedamp.run(method=name, alone=True, engine=engine, **SGD, **QUICK)
        assert torch.equal(beside.models["alone"].params, separate.models["own"].params)
        kept, wanted = beside.best_models["alone"], separate.best_models["own"]
        assert (kept.round, kept.scores, kept.validation) == (wanted.round, wanted.scores, wanted.validation)
        played = [line for line in beside.history if "alone" in line["test"]]
        for mine, theirs in zip(played, separate.history, strict=True):
            assert mine["test"]["alone"] == theirs["test"]["own"]
            assert mine["validation"]["alone"] == theirs["validation"]["own"]
            assert mine.get("train_loss_alone") == theirs.get("train_loss")


@pytest.mark.parametrize("name", SOME_AT_ONCE)
def test_everything_else_is_as_without_it(name):
    bare, beside = fedamp.run(method=name, **QUICK), fedamp.run(method=name, alone=True, **QUICK)
    assert without("alone", bare.history) == without("alone", beside.history)
    assert bare.summary == beside.summary
    assert bare.method == beside.method
    assert bare.facts == beside.facts
    assert (bare.xi is None and beside.xi is None) or torch.equal(bare.xi, beside.xi)
    for entry, rows in bare.models.items():
        assert torch.equal(rows.params, beside.models[entry].params)
    assert torch.equal(bare.chosen.models.params, beside.chosen.models.params)
    assert bare.alone is None
    assert "alone" not in bare.to_dict()
    assert (beside.alone is None) == (name == "separate")  # which is that model itself


def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(tmp_path):
    settings = {"method": "scaffold", "alone": True, **QUICK}
    whole = fedamp.run(out=tmp_path / "whole", **settings)
    fedamp.run(out=tmp_path / "broken", observer=lambda line: line["round"] < 2, **settings)
    again = fedamp.run(out=tmp_path / "broken", **settings)
    assert without("", whole.history) == without("", again.history)
    assert whole.alone == again.alone
    assert torch.equal(whole.models["alone"].params, again.models["alone"].params)
    read = fedamp.run(out=tmp_path / "broken", **settings)
    assert (read.alone, read.warnings) == (whole.alone, whole.warnings)


def opposite(**settings):
    """Ten clients under one rule and one, the last, under its opposite, with 150 samples each."""
    given = {"rounds": 6, "epochs": 3, "lr": 0.02, "validation": 0.3, "alone": True, **settings}
    return fedamp.run(clients=silos((150,) * 11, opposite=(10,)), model="logistic", **given)


def test_who_is_worse_off_is_warned_with_the_reason_and_the_cure():
    result = opposite(method="fedavg")
    assert result.alone.worse_off == (10,)
    assert result.alone.samples == [45] * 11
    (warning,) = [each for each in result.warnings if "worse off" in each]
    assert warning.startswith("client 10 is worse off than alone: ")
    assert "on 45 held-out samples (p = " in warning
    assert "all clients take home the same model" in warning
    assert warning.endswith("Take its model trained alone (fedamp export --take-home alone), or try --method autoamp")


def test_the_weights_of_a_method_that_has_them_are_the_reason():
    result = opposite(method={"name": "fedamp", "sigma": float("inf"), "alpha": 1e-3})
    (warning,) = [each for each in result.warnings if "client 10 is worse off" in each]
    assert "its own model has a weight of 0.09 in what it gets, which is made from 11.0 clients' models" in warning


def test_what_is_compared_are_the_models_that_are_taken_home():
    result = opposite(method="fedavg")
    home = BesideAlone.of(result.to_dict()["alone"]).home
    assert home.round == result.chosen.round == result.best_models["received"].round
    assert home.test == result.chosen.scores
    assert result.alone.alone.test == result.best_models["alone"].scores
    mean = sum(home.validation) / len(home.validation) / 100
    assert mean == pytest.approx(result.chosen.validation)


def test_a_poisoned_client_is_not_warned():
    assert 10 not in opposite(method="fedavg", poisoned=[10], poison_scale=0.1, replies="any").alone.worse_off


def test_a_regression_is_compared_by_its_errors():
    g = torch.Generator().manual_seed(0)
    rule, pairs = torch.randn(4, generator=g), []
    for sign in (1, 1, 1, -1):
        x = torch.randn(150, 4, generator=g)
        pairs.append((x, sign * (x @ rule)))
    result = fedamp.run(clients=pairs, model="logistic", method="fedavg", alone=True, validation=0.3, rounds=6)
    assert result.alone.metric == "rmse"
    assert 3 in result.alone.worse_off
    assert any("client 3 is worse off than alone: RMSE" in each for each in result.warnings)


def test_a_configuration_without_it_is_written_as_before():
    assert "alone" not in RunConfig().to_dict()
    assert RunConfig(alone=True).to_dict()["alone"] is True
    assert RunConfig.of(RunConfig(alone=True).to_dict()).alone


def test_the_needs_count_both_trainings():
    configs = [RunConfig(clients=5, rounds=4, alone=alone) for alone in (False, True)]
    one, two = (needs(config, assemble(config)) for config in configs)
    assert two.passes == 2 * one.passes
    assert two.models > one.models


RUN = ("run", "--method", "fedavg", "--clients", 5, "--rounds", 3, "--epochs", 2, "--alone")


def test_the_command_says_who_is_worse_off(fedamp_command, tmp_path):
    code, text, errors = fedamp_command(*RUN, "--validation", 0.4, "--out", "one")
    assert code == 0
    result = json.loads((tmp_path / "one" / "result.json").read_text())
    headline = BesideAlone.of(result["alone"]).headline()
    assert f"against training alone: {headline}" in text
    assert errors.count("is worse off than alone") == len(result["alone"]["worse_off"])
    code, again, _ = fedamp_command(*RUN, "--validation", 0.4, "--out", "one")
    assert "already finished" in again
    assert headline in again
    fedamp_command("report", "one")
    page = (tmp_path / "one" / "report.html").read_text()
    assert "Against training alone" in page
    assert '<th scope="row">client 4</th>' in page
    assert "fedamp run --data digits" in page
    assert "--alone" in page


def test_without_held_out_samples_it_says_what_to_give(fedamp_command):
    _, text, errors = fedamp_command(*RUN)
    assert "nothing is held out, so nobody is warned who is worse off; give --validation" in text
    assert "worse off" not in errors
    _, text, _ = fedamp_command(*RUN, "--dry-run")
    assert "half of them for the models trained alone" in text


def test_the_model_trained_alone_can_be_taken(fedamp_command, tmp_path):
    from safetensors.torch import load_file

    fedamp_command(*RUN, "--validation", 0.4, "--out", "one")
    assert fedamp_command("export", "one", "--client", 2, "--take-home", "alone")[0] == 0
    how = json.loads((tmp_path / "one" / "client-2-alone.json").read_text())
    result = json.loads((tmp_path / "one" / "result.json").read_text())
    assert how["entry"] == "alone"
    assert how["score"]["test"] == result["alone"]["alone"]["test"][2]
    kept = load_file(tmp_path / "one" / "best.safetensors")["alone.params"][2]
    exported = load_file(tmp_path / "one" / "client-2-alone.safetensors")
    assert torch.equal(torch.cat([each.flatten() for each in exported.values()]).sort().values, kept.sort().values)
    bare = [each for each in RUN if each != "--alone"]
    fedamp_command(*bare, "--out", "bare")
    code, _, error = fedamp_command("export", "bare", "--client", 2, "--take-home", "alone")
    assert code == 2
    assert "has no models trained alone; run it with --alone" in error


def test_a_comparison_says_in_which_runs_clients_are_worse_off(fedamp_command, tmp_path):
    flags = ("--methods", "fedavg,fedavg-ft", "--clients", 5, "--rounds", 3, "--epochs", 2)
    code, _, errors = fedamp_command("compare", *flags, "--alone", "--validation", 0.4, "--out", "all")
    assert code == 0
    results = {
        name: json.loads((tmp_path / "all" / f"{name}-seed0" / "result.json").read_text())
        for name in ("fedavg", "fedavg-ft", "separate")
    }
    assert "alone" not in results["separate"]
    for name in ("fedavg", "fedavg-ft"):  # each compared with its own models, not with its twin's
        entry = results[name]["scored"]
        assert results[name]["alone"]["home"]["test"] == results[name]["best_models"][entry]["scores"]
        assert (f"{name}-seed0: " in errors) == bool(results[name]["alone"]["worse_off"])
