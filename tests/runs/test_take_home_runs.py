"""What a run's clients take home: the record of the choice, the models that are kept of it, and what people see."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedamp
from fedamp.config import Named, RunConfig
from fedamp.errors import UserError
from fedamp.methods import FedAMP
from fedamp.records.take_home import ENTRIES, HeldOut
from fedamp.rows import Rows
from fedamp.runs import scoring
from fedamp.runs.identity import inputs_of, slug
from fedamp.runs.in_use.export import export_client
from fedamp.runs.loop import play
from fedamp.runs.material import load_material
from fedamp.runs.scoring import with_between
from fedamp.runs.setup import assemble
from fedamp.runs.standing import Standing
from fedamp.training.evaluate import Scores, evaluate
from helpers import SOME_AT_ONCE, silos

QUICK = {"data": "digits", "clients": 6, "rounds": 7, "epochs": 1, "validation": 0.25, "lr": 0.05}


def by_hand(result):
    """Return (entry, round) from the lines, with plain sums over the samples; ties by the loss."""
    sizes = np.array(result.facts.validation_sizes)
    found = []
    for line in result.history:
        for entry, scores in line["validation"].items():
            made = line["round"] - (entry == "received")
            if made >= 1:
                right, loss = (float(np.dot(sizes, scores[name])) for name in ("accuracy", "loss"))
                found.append((round(right, 6), -loss, entry == result.method.scored, -made, entry))
    best = max(found)
    return best[4], -best[3], 100 * best[0] / sizes.sum()


def first_models(config):
    setup = assemble(config)
    return Standing.first(setup).models(setup)


@pytest.mark.parametrize("lr", [0.05, 0.01])
@pytest.mark.parametrize("method", SOME_AT_ONCE)
@pytest.mark.many
def test_the_record_is_the_choice_by_hand_and_the_models_are_those(method, lr, tmp_path):
    settings = {**QUICK, "method": method, "lr": lr}
    result = fedamp.run(out=tmp_path / "run", **settings)
    entry, made, score = by_hand(result)
    told = json.loads((tmp_path / "run" / "result.json").read_text())["take_home"]
    assert (told["entry"], told["round"]) == (entry, made)
    assert told["held_out"][entry]["score"] == pytest.approx(score)
    both = "received" in result.models
    assert set(told["held_out"]) == (set(ENTRIES) if both else {"own"})
    # The models that are kept are those of a run that ends there, and theirs are the scores.
    ends = fedamp.run(**{**settings, "rounds": made})
    models = dict(ends.models)
    if entry == "between":  # w of the last round, and u as it was sent in it
        sent = fedamp.run(**{**settings, "rounds": made - 1}).models if made > 1 else first_models(result.config)
        models = with_between({"own": ends.models["own"], "received": sent["received"]})
    assert torch.equal(result.taken.params, models[entry].params)
    assert torch.equal(load_file(tmp_path / "run" / "best.safetensors")["chosen.params"], result.taken.params)
    line = next(line for line in result.history if line["round"] == made + (entry == "received"))
    assert told["scores"] == pytest.approx([100 * score for score in line["test"][entry]["accuracy"]])
    assert told["mean"] == pytest.approx(np.mean(told["scores"]))
    again = fedamp.run(out=tmp_path / "run", **settings)
    assert (again.take_home, again.chosen.why) == (result.take_home, result.chosen.why)
    assert torch.equal(again.taken.params, result.taken.params)


def test_all_three_are_chosen_there():
    """Else the test above would show less than it seems to."""
    runs = {"separate": 0.05, "fedavg": 0.05, "fedamp": 0.01}
    chosen = [fedamp.run(method=method, **{**QUICK, "lr": lr}).take_home.entry for method, lr in runs.items()]
    assert chosen == ["own", "between", "received"]


def test_the_midpoint_is_between_and_of_equal_models_the_model():
    g = torch.Generator().manual_seed(0)
    own, received = (Rows(torch.randn(3, 5, generator=g), torch.randn(3, 2, generator=g)) for _ in range(2))
    middle = with_between({"own": own, "received": received})["between"]
    torch.testing.assert_close(middle.params - own.params, received.params - middle.params)
    torch.testing.assert_close(middle.buffers - own.buffers, received.buffers - middle.buffers)
    assert torch.equal(with_between({"own": own, "received": own})["between"].params, own.params)
    assert set(with_between({"own": own})) == {"own"}
    one_for_all = with_between({"own": own, "received": own.mean().repeat(3)})["between"]
    torch.testing.assert_close(one_for_all.params, (own.params + own.params.mean(0)) / 2)


def test_without_validation_there_is_nothing_new():
    result = fedamp.run(**{**QUICK, "validation": 0.0, "method": "autoamp"})
    assert result.take_home is None
    assert result.chosen.models is result.last_models["received"].models
    assert {"take_home", "between"}.isdisjoint({*result.to_dict(), *result.history[1]["test"]})
    assert "validation_sizes" not in result.to_dict()["facts"]


@pytest.mark.parametrize("method", ["autoamp", "fedamp", "fedavg"])
def test_test_samples_decide_nothing(method):
    """All test labels are turned around: every test score changes, and the choice does not."""
    config = RunConfig.of({**QUICK, "method": method})
    material = load_material(config)
    clients = material.clients
    tested = torch.cat(list(clients.test)).unique()
    assert not set(tested.tolist()) & set(torch.cat(list(clients.train)).tolist()), "the labels of both would change"
    turned = clients.y.clone()
    turned[tested] = (turned[tested] + 1) % 10
    one, other = (
        play(config, assemble(config, replace(material, clients=replace(clients, y=y)))) for y in (clients.y, turned)
    )
    assert one.take_home.scores != other.take_home.scores
    assert one.take_home.held_out == other.take_home.held_out
    assert (one.take_home.entry, one.take_home.round) == (other.take_home.entry, other.take_home.round)
    assert torch.equal(one.taken.params, other.taken.params)


def test_a_poisoned_clients_held_out_samples_do_not_count():
    result = fedamp.run(method="fedamp", poisoned=(0,), **QUICK)
    sizes = [0, *result.facts.validation_sizes[1:]]
    said = HeldOut(tuple(sizes), "accuracy", "own").over(result.history)
    assert (said.choice.entry, said.choice.round) == (result.take_home.entry, result.take_home.round)
    assert result.take_home.mean == pytest.approx(np.mean(result.take_home.scores[1:]))
    everyone = HeldOut(tuple(result.facts.validation_sizes), "accuracy", "own").over(result.history)
    assert everyone.best["own"].score != said.best["own"].score


def test_silos_with_one_held_out_sample_and_errors():
    g = torch.Generator().manual_seed(3)
    pairs = []
    for _ in range(8):
        x = torch.randn(10, 2, generator=g)
        pairs.append((x, x @ torch.tensor([1.0, -1.0]) + 0.3 * torch.randn(10, generator=g)))
    result = fedamp.run(clients=pairs, model="mlp", rounds=6, lr=0.05, validation=0.1, method="fedamp")
    assert result.facts.validation_sizes == [1] * 8
    errors = {
        (entry, line["round"] - (entry == "received")): np.sqrt(np.mean(np.square(scores["rmse"])))
        for line in result.history
        for entry, scores in line["validation"].items()
        if line["round"] > (entry == "received")
    }
    home = result.take_home
    assert (home.entry, home.round) == min(errors, key=errors.get)
    assert home.held_out[home.entry].score == pytest.approx(min(errors.values()))


def test_rules(tmp_path):
    """The nine keep what the paper scores, AutoAMP takes the choice; either can be asked for otherwise."""
    taken = {}
    for method in ("fedavg", "autoamp"):
        for rule in ("auto", "scored", "chosen"):
            result = fedamp.run(method=method, take_home=rule, **QUICK)
            taken[method, rule] = result.take_home.rule
            kept = result.taken if result.take_home.rule == "chosen" else result.best_models["received"].models
            assert torch.equal(result.chosen.models.params, kept.params)
    assert all(taken[method, rule] == rule for method, rule in taken if rule != "auto")
    assert (taken["fedavg", "auto"], taken["autoamp", "auto"]) == ("scored", "chosen")
    with pytest.raises(UserError, match="take_home is 'chosen', but no samples are held out"):
        fedamp.run(take_home="chosen")


@pytest.mark.parametrize("rule", ["scored", "chosen"])
def test_an_export_is_the_model_that_it_says(rule, tmp_path):
    result = fedamp.run(out=tmp_path / "run", method="fedavg", absent=0.3, **QUICK)
    clients = load_material(result.config).clients
    path = export_client(tmp_path / "run", 2, take_home=rule)
    spec = json.loads(path.with_suffix(".json").read_text())
    assert spec["entry"] == (result.take_home.entry if rule == "chosen" else "received")
    module = nn.Sequential(*[getattr(nn, name)(**options) for name, options in spec["layers"]])
    module.load_state_dict(load_file(path))
    x, y = clients.samples(clients.test[2])
    with torch.no_grad():
        right = 100 * float((module.eval()(x).argmax(1) == y).double().mean())
    assert right == pytest.approx(spec["score"]["test"])
    with pytest.raises(UserError, match="unknown take_home 'best'; choose from alone, chosen, scored"):
        export_client(tmp_path / "run", 2, take_home="best")


def test_an_export_of_a_choice_that_was_not_made(tmp_path):
    fedamp.run(out=tmp_path / "run", **{**QUICK, "validation": 0.0, "rounds": 1})
    with pytest.raises(UserError, match="has no choice of what clients take home"):
        export_client(tmp_path / "run", 2, take_home="chosen")


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_the_choice_survives_a_stop(stop, tmp_path):
    settings = {**QUICK, "method": "fedavg", "absent": 0.3}
    whole = fedamp.run(out=tmp_path / "whole", **settings)
    fedamp.run(out=tmp_path / "broken", observer=lambda line: line["round"] < stop, **settings)
    gone_on = fedamp.run(out=tmp_path / "broken", **settings)
    assert gone_on.take_home == whole.take_home
    assert torch.equal(gone_on.taken.params, whole.taken.params)


def test_the_default_leaves_descriptions_and_folder_names_as_they_were():
    config = RunConfig.of({**QUICK, "method": "fedamp"})
    assert "take_home" not in config.to_dict()
    assert RunConfig.of(config.to_dict()) == config
    inputs = inputs_of(config, load_material(config))
    other = replace(config, take_home="chosen")
    assert RunConfig.of(other.to_dict()) == other
    assert slug(config, inputs) != slug(other, inputs)


def test_at_the_terminal(fedamp_command):
    quick = ["--clients", "6", "--rounds", "5", "--epochs", "1", "--validation", "0.25", "--lr", "0.05"]
    code, out, err = fedamp_command("run", *quick, "--method", "fedavg", "--out", "one")
    assert code == 0, err
    told = json.loads(Path("one/result.json").read_text())["take_home"]
    held_out = told["held_out"][told["entry"]]["score"]
    expected = f"{told['mean']:.2f} % (round {told['round']}; held out {held_out:.2f} %; not taken: see --take-home)"
    assert expected in " ".join(out.split())
    code, out, err = fedamp_command("export", "one", "--client", 1, "--take-home", "chosen")
    assert code == 0, err
    assert json.loads(Path("one/client-1.json").read_text())["score"]["test"] == told["scores"][1]
    code, out, err = fedamp_command("compare", *quick, "--methods", "fedavg,fedavg-ft", "--out", "both")
    assert code == 0, err
    heads = out.splitlines()[0]
    assert "validated %" in heads
    assert "chosen %" in heads
    # The same trajectory: what is chosen is the same, what is validated is each method's own entry.
    rows = {
        row["method"]: row
        for row in csv.DictReader(io.StringIO(fedamp_command("report", "both", "--format", "csv")[1]))
    }
    symbol = {"own": "w", "received": "u", "between": "midpoint"}[told["entry"]]
    assert out.count(f"{told['mean']:.2f} ({symbol})") == 2
    for method, entry in (("fedavg", "received"), ("fedavg-ft", "own")):
        assert (float(rows[method]["chosen"]), rows[method]["chosen_entries"]) == (pytest.approx(told["mean"]), symbol)
        lines = [json.loads(text) for text in Path("one/rounds.jsonl").read_text().splitlines()]
        line = lines[told["held_out"][entry]["round"] + (entry == "received")]
        assert float(rows[method]["validated"]) == pytest.approx(100 * np.mean(line["test"][entry]["accuracy"]))
    assert fedamp_command("report", "both")[0] == 0
    assert "chosen\N{NO-BREAK SPACE}%" in Path("both/report.html").read_text()
    code, out, err = fedamp_command("run", "--take-home", "chosen")
    assert (code, "give --validation" in err) == (2, True)


@pytest.mark.parametrize("method", ["fedavg", "fedamp", "autoamp"])
def test_with_absent_clients_the_score_is_that_of_the_models_that_are_kept(method):
    """An absent client has what it received last, and not what the server would have sent it."""
    for seed in range(4):
        result = fedamp.run(method=method, absent=0.4, take_home="chosen", **{**QUICK, "seed": seed})
        material = load_material(result.config)
        setup = assemble(result.config, material)
        scored = evaluate(setup.trainer, setup.clients, result.taken, "validation").metric.numpy()
        sizes = [len(held) for held in setup.clients.validation]
        found = 100 * float(np.average(scored, weights=sizes))
        assert found == pytest.approx(result.take_home.held_out[result.take_home.entry].score)


@pytest.mark.parametrize("rows", ["device", "host"])
def test_the_server_mixes_once_a_round_whether_samples_are_held_out_or_not(rows, monkeypatch):
    counts = []
    for validation in (0.0, 0.25):
        sent, real = [], FedAMP.server_send
        monkeypatch.setattr(FedAMP, "server_send", lambda *given, s=sent, real=real: s.append(1) or real(*given))
        fedamp.run(method="fedamp", clients=5, rounds=4, epochs=1, model="logistic", validation=validation, rows=rows)
        monkeypatch.undo()
        counts.append(len(sent))
    assert counts == [6, 6]  # before the first round, in each, and what would be sent next


@pytest.mark.parametrize("seed", range(4))
def test_who_learns_alone_takes_home_what_it_has_alone(seed):
    """With a handful of held-out samples many rounds are equally good: both models are chosen by the same rule."""
    pairs = silos((11, 14, 40, 9))
    settings = {"model": "logistic", "rounds": 6, "epochs": 1, "validation": 0.3, "seed": seed, "lr": 0.05}
    result = fedamp.run(clients=pairs, method="separate", take_home="chosen", **settings)
    assert result.chosen.round == result.best_models["own"].round
    assert torch.equal(result.chosen.models.params, result.best_models["own"].models.params)
    assert result.best_models["own"].validation == pytest.approx(result.chosen.validation)


def test_of_equal_scores_the_lower_loss_is_better_and_clients_count_by_their_samples(monkeypatch):
    config = RunConfig(clients=3, validation=0.3, model="logistic", setting=Named("practical", {"groups": 3}))
    setup = assemble(config)
    sizes = scoring.held_sizes(config, setup)
    assert len(set(sizes)) > 1
    mean, total = torch.tensor([0.9, 0.5, 0.5], dtype=torch.float64), torch.tensor([0.1, 0.2, 0.3]).double()
    found = {}
    for k, (metric, loss) in enumerate([(mean, total), (mean, total / 2), (mean, total), (mean.flip(0), total)], 1):
        monkeypatch.setattr(scoring, "evaluated", lambda *_, m=metric, x=loss: {"own": Scores(m, x)})
        found = scoring.better(config, setup, found, {"own": setup.w}, k)
        if k == 3:
            assert found["own"].round == 2  # the third is as good, with a higher loss
    weighted = [sum(a * n for a, n in zip(each.tolist(), sizes, strict=True)) for each in (mean, mean.flip(0))]
    assert found["own"].round == (4 if weighted[1] > weighted[0] else 2)
    assert found["own"].score == pytest.approx(max(weighted) / sum(sizes))
