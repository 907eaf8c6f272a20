"""Models, weights and scores belong to the round that is written beside them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedamp
from fedamp.data.given.samples import given_samples
from fedamp.methods import METHODS
from fedamp.records.checkpoints import load_checkpoint
from fedamp.runs.in_use.export import export_client
from helpers import SOME_AT_ONCE

QUICK = {"data": "digits", "clients": 6, "rounds": 6, "epochs": 1}


def accuracy(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return 100 * float((module(x).argmax(1) == y).double().mean())


def samples(result: fedamp.Result, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a client's scaled test samples, found without the engine's own evaluation."""
    from fedamp.runs.material import load_material

    clients = load_material(result.config).clients
    return clients.samples(clients.test[client])


@pytest.mark.parametrize("method", SOME_AT_ONCE)
def test_an_observer_that_has_seen_enough_leaves_that_round(method, tmp_path):
    """It once left the models and weights of the round before."""
    early = fedamp.run(method=method, out=tmp_path / "run", observer=lambda line: line["round"] < 3, **QUICK)
    exact = fedamp.run(method=method, **{**QUICK, "rounds": 3})
    assert [line["test"] for line in early.history] == [line["test"] for line in exact.history]
    for entry, rows in exact.models.items():
        assert torch.equal(early.models[entry].params, rows.params), entry
    if exact.xi is not None:
        assert torch.equal(early.xi, exact.xi)
    assert not json.loads((tmp_path / "run" / "result.json").read_text())["finished"]
    gone_on = fedamp.run(method=method, out=tmp_path / "run", **QUICK)
    whole = fedamp.run(method=method, **QUICK)
    assert [line["test"] for line in gone_on.history] == [line["test"] for line in whole.history]
    for entry, rows in whole.models.items():
        assert torch.equal(gone_on.models[entry].params, rows.params), entry


def test_broken_off_between_a_line_and_its_state(tmp_path, monkeypatch):
    """Ctrl-C may fall right after a round was written down: that line goes, since its models are not kept."""
    from fedamp.runs.standing import Standing

    real, calls = Standing.after, []

    def broken(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(Standing, "after", broken)
    with pytest.raises(KeyboardInterrupt):
        fedamp.run(out=tmp_path / "run", **QUICK)
    monkeypatch.undo()
    lines = [json.loads(text) for text in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines if "own" in line["test"]] == [0, 1, 2]
    exact = fedamp.run(**{**QUICK, "rounds": 2})
    assert torch.equal(load_file(tmp_path / "run" / "models.safetensors")["own.params"], exact.models["own"].params)
    assert load_file(tmp_path / "run" / "xi.safetensors")["xi"].shape[0] == 2


@pytest.mark.parametrize("method", SOME_AT_ONCE)
@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_the_exported_score_is_the_exported_models(method, validation, tmp_path):
    """Rounds differ, so that the score of another round would show."""
    settings = {**QUICK, "method": method, "validation": validation, "absent": 0.3, "lr": 0.05, "rounds": 8}
    result = fedamp.run(out=tmp_path / "run", **settings)
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    for client in range(6):
        x, y = samples(result, client)
        path = export_client(tmp_path / "run", client)
        spec = json.loads(path.with_suffix(".json").read_text())
        mine = nn.Sequential(*[getattr(nn, name)(**options) for name, options in spec["layers"]])
        mine.load_state_dict(load_file(path))
        assert accuracy(mine.eval(), x, y) == pytest.approx(spec["score"]["test"])
        assert accuracy(result.client_model(client), x, y) == pytest.approx(spec["score"]["test"])
        for entry in told["models"]:
            rows = load_file(tmp_path / "run" / "models.safetensors")
            module = result.client_model(client)
            vector = rows[f"{entry}.params"][client]
            nn.utils.vector_to_parameters(vector, module.parameters())
            assert accuracy(module, x, y) == pytest.approx(told["models"][entry]["scores"][client])


def test_the_best_round_is_chosen_by_validation_and_never_by_test(tmp_path):
    settings = {**QUICK, "validation": 0.25, "lr": 0.1, "rounds": 8, "method": "fedamp"}
    result = fedamp.run(out=tmp_path / "run", **settings)
    on = np.array([line["validation"]["own"]["accuracy"] for line in result.history[1:-1]]).mean(1)
    assert result.chosen.round == int(on.argmax()) + 1
    assert result.chosen.round < 8, "the last is the best here: the test shows nothing"
    assert result.chosen.scores == result.scores[result.chosen.round - 1].tolist()
    short = fedamp.run(**{**settings, "rounds": result.chosen.round})
    assert torch.equal(short.models["own"].params, result.chosen.models.params)
    path = export_client(tmp_path / "run", 2)
    spec = json.loads(path.with_suffix(".json").read_text())["score"]
    assert spec["round"] == result.chosen.round
    assert "validation" in spec["why_this_round"]


def test_without_validation_it_is_the_last(tmp_path):
    result = fedamp.run(out=tmp_path / "run", **QUICK, lr=0.05)
    assert result.chosen.round == 6
    assert not (tmp_path / "run" / "best.safetensors").exists()
    spec = json.loads(export_client(tmp_path / "run", 2).with_suffix(".json").read_text())["score"]
    assert spec["round"] == 6
    assert "last round" in spec["why_this_round"]


@pytest.mark.parametrize("method", ["fedamp", "fedavg", "fedavg-ft"])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.many
def test_the_best_round_survives_a_stop(method, before, tmp_path):
    settings = {**QUICK, "validation": 0.25, "lr": 0.3, "rounds": 10, "method": method, "absent": 0.3, "seed": 3}
    whole = fedamp.run(out=tmp_path / "whole", **settings)
    best = whole.chosen.round
    assert best < 9, "a best round near the end shows nothing here"
    stop = best + 1 if before else max(1, best - 1)
    fedamp.run(out=tmp_path / "broken", observer=lambda line: line["round"] < stop, **settings)
    gone_on = fedamp.run(out=tmp_path / "broken", **settings)
    assert gone_on.to_dict()["best_models"] == whole.to_dict()["best_models"]
    for entry, snapshot in whole.best_models.items():
        assert torch.equal(gone_on.best_models[entry].models.params, snapshot.models.params)
    ours, theirs = (load_file(tmp_path / name / "best.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_fine_tuned_twin_has_the_scores_of_its_own_models(fedamp_command):
    """FedAvg-FT is FedAvg scored elsewhere: its export is the client's own model, with that one's score."""
    code, _, err = fedamp_command(
        *("compare", "--methods", "fedavg,fedavg-ft", "--rounds", "6", "--clients", "6", "--epochs", "1"),
        *("--validation", "0.25", "--lr", "0.05", "--out", "both"),
    )
    assert code == 0, err
    for method in ("fedavg", "fedavg-ft"):
        folder = Path("both") / f"{method}-seed0"
        spec = json.loads(export_client(folder, 1).with_suffix(".json").read_text())
        told = json.loads((folder / "result.json").read_text())
        assert spec["entry"] == METHODS[method].scored
        assert spec["score"]["test"] == told["best_models"][spec["entry"]]["scores"][1]
        assert spec["score"]["round"] == told["best_models"][spec["entry"]]["round"]


def test_a_regressions_exported_error_is_its_own(tmp_path):
    g = torch.Generator().manual_seed(3)
    pairs = []
    for _ in range(3):
        x = torch.randn(40, 2, generator=g)
        pairs.append((x, x @ torch.tensor([1.0, -1.0]) + 0.3 * torch.randn(40, generator=g)))
    result = fedamp.run(clients=pairs, model="mlp", rounds=6, lr=0.3, optimizer="sgd", out=tmp_path / "run")
    clients = given_samples(pairs, 0.2, 0).clients
    for client in range(3):
        x, y = clients.samples(clients.test[client])
        with torch.no_grad():
            rmse = float(((result.client_model(client)(x)[:, 0] - y) ** 2).mean().sqrt())
        assert rmse == pytest.approx(result.chosen.scores[client], rel=1e-4)


def test_a_second_resume_trains_as_the_first(tmp_path):
    """The way of training is that of the first start, however often a run goes on."""
    threads = torch.get_num_threads()
    try:
        # A model with more parameters than one thread is given to: it takes as many as there are.
        settings = {**QUICK, "model": {"name": "mlp", "hidden": 1400}, "method": "separate", "steps": 1, "rounds": 3}
        del settings["epochs"]
        torch.set_num_threads(2)
        fedamp.run(out=tmp_path / "run", observer=lambda line: line["round"] < 1, **settings)
        torch.set_num_threads(1)
        fedamp.run(out=tmp_path / "run", observer=lambda line: line["round"] < 2, **settings)
        assert load_checkpoint(tmp_path / "run", torch.device("cpu")).how["threads"] == 2
        assert fedamp.run(out=tmp_path / "run", **settings).facts.threads == 2
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)


def test_a_silos_models_at_home_have_their_own_scores(tmp_path):
    pytest.importorskip("flwr")
    from fedamp.config import Named, RunConfig
    from fedamp.data.silos.read import read_silo
    from fedamp.data.silos.schema import make_schema
    from fedamp.federation.plan import Plan, SiloConfig
    from fedamp.federation.silo.round import open_silo

    rows = [f"{i % 7},{i % 5},{'ab'[(i % 7) > 3]}" for i in range(60)]
    (tmp_path / "mine.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    settings = {"setting": Named("natural"), "method": Named("fedamp"), "label": "label"}
    config = RunConfig(data="x", clients=1, lr=0.05, **settings)
    plan = Plan("test", config, make_schema([read_silo(tmp_path / "mine.csv", "label")]))
    silo = open_silo(SiloConfig(plan, "mine", 0, "nowhere:1"), tmp_path / "mine.csv", tmp_path)
    method, server = silo.setup.method, silo.setup.method.server_init(silo.setup.w)
    _, message = method.server_send(server, 1)
    _, metrics = silo.play(1, 0, message)
    assert metrics["test.own.accuracy"] != metrics["test.received.accuracy"], "the two can't be told apart here"
    for entry, made in (("own", 1), ("received", 0)):
        spec = json.loads((tmp_path / "models" / f"{entry}.json").read_text())
        assert spec["score"] == {"metric": "accuracy", "test": metrics[f"test.{entry}.accuracy"], "round": made}


def test_an_export_of_a_run_that_was_broken_off_says_so(tmp_path):
    fedamp.run(out=tmp_path / "run", observer=lambda line: line["round"] < 2, **QUICK)
    spec = json.loads(export_client(tmp_path / "run", 0).with_suffix(".json").read_text())
    assert "interrupted after 2 of 6 rounds" in spec["score"]["why_this_round"]
    fedamp.run(out=tmp_path / "run", **QUICK)
    spec = json.loads(export_client(tmp_path / "run", 0).with_suffix(".json").read_text())
    assert "broken off" not in spec["score"]["why_this_round"]


def test_of_errors_the_lowest_error_is_the_best():
    g = torch.Generator().manual_seed(3)
    pairs = []
    for _ in range(3):
        x = torch.randn(60, 2, generator=g)
        pairs.append((x, x @ torch.tensor([1.0, -1.0]) + 0.3 * torch.randn(60, generator=g)))
    result = fedamp.run(clients=pairs, model="mlp", rounds=6, lr=0.05, validation=0.25, method="separate")
    on = np.array([line["validation"]["own"]["rmse"] for line in result.history[1:]]).mean(1)
    assert result.chosen.round == int(on.argmin()) + 1


def test_what_is_received_is_of_the_round_before():
    """The best validated cloud models are those that the server has after the round that is named."""
    settings = {**QUICK, "validation": 0.25, "lr": 0.1, "rounds": 8, "method": "fedavg"}
    result = fedamp.run(**settings)
    short = fedamp.run(**{**settings, "rounds": result.chosen.round})
    assert torch.equal(short.models["received"].params, result.chosen.models.params)
