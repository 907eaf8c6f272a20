"""A federation decides what silos take home as the engine does, and every silo has those models at home."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedamp.federation.silo.round import open_silo
from fedamp.federation.silo.unwilling import UnwillingError
from fedamp.methods import METHODS
from fedamp.records.take_home import ENTRIES
from fedamp.runs.loop import play
from fedamp.runs.setup import assemble
from federation.inprocess import Local, plan_of, write_silos
from helpers import SOME_AT_ONCE


def write_alike(folder):
    """Write silos under one rule: what the server sends is better than what a silo makes of it."""
    stream = np.random.default_rng(0)
    folder.mkdir(parents=True)
    rule = stream.normal(0, 1, (5, 3))
    for i in range(3):
        x = stream.normal(0, 1, (40, 5)).astype(np.float32)
        np.savez(folder / f"silo-{i}.npz", x=x, y=(x @ rule).argmax(1))
    return folder


CASES = {"different": (write_silos, 0.1), "alike": (write_alike, 0.03)}
"""Silos, and a learning rate at which the choice is not always that of the last round's own models."""


def engine(plan, rounds=None):
    config = replace(plan.config, engine="loop", rounds=rounds or plan.config.rounds)
    return play(config, assemble(config))


def told(tmp_path):
    return json.loads((tmp_path / "record" / "result.json").read_text())


def assert_at_home(local, result):
    """Every silo's chosen model is its row of those that the engine keeps."""
    home = result.take_home
    for i, house in local.houses.items():
        spec = json.loads((house.folder / "models" / "chosen.json").read_text())
        assert (spec["entry"], spec["score"]["round"]) == (home.entry, home.round)
        assert 100 * spec["score"]["test"] == pytest.approx(home.scores[i])
        ours = load_file(house.folder / "models" / "chosen.safetensors")
        theirs = result.model.state_dict(result.taken[slice(i, i + 1)])
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", SOME_AT_ONCE)
@pytest.mark.many
def test_the_decision_and_the_models_are_the_engines(tmp_path, method, case):
    write, lr = CASES[case]
    data = write(tmp_path / "data")
    plan = plan_of(data, method, rounds=5, validation=0.3, lr=lr)
    local, result = Local(tmp_path, plan, data), engine(plan)
    local.serve()
    found = told(tmp_path)
    assert found["take_home"] == result.to_dict()["take_home"]
    assert found["facts"]["validation_sizes"] == result.facts.validation_sizes
    assert_at_home(local, result)


@pytest.mark.slow
def test_every_entry_an_earlier_and_the_very_last_model_are_chosen_there(tmp_path):
    """Else the test above would show less than it seems to."""
    homes = {}
    for case, (write, lr) in CASES.items():
        data = write(tmp_path / case)
        for method in sorted(METHODS):
            homes[method, case] = engine(plan_of(data, method, rounds=5, validation=0.3, lr=lr)).take_home
    assert {home.entry for home in homes.values()} == set(ENTRIES)
    assert min(home.round for home in homes.values()) < 5
    # What is sent after the last round: silos learn of this choice by a message of its own.
    assert ("received", 5) in {(home.entry, home.round) for home in homes.values()}


@pytest.mark.parametrize("method", ["fedavg", "fedamp"])
def test_a_federation_that_goes_on_decides_as_if_it_had_not_ended(tmp_path, method):
    data = write_alike(tmp_path / "data")
    plan = plan_of(data, method, rounds=5, validation=0.3, lr=0.1)
    local = Local(tmp_path, plan, data)
    local.serve(rounds=2)
    assert told(tmp_path)["take_home"] == engine(plan, rounds=2).to_dict()["take_home"]
    assert_at_home(local, engine(plan, rounds=2))
    local.serve()
    assert told(tmp_path)["take_home"] == engine(plan).to_dict()["take_home"]
    assert_at_home(local, engine(plan))


def test_a_silo_that_misses_rounds_counts_by_its_last_scores(tmp_path):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, "fedamp", rounds=4, validation=0.2, lr=0.05)
    local = Local(tmp_path, plan, data, tamper=lambda i, reply: None if i == 1 and lost(reply) else reply)

    def lost(reply):
        return int(reply.metadata.group_id) in (3, 4)

    local.serve()
    lines = [json.loads(text) for text in (tmp_path / "record" / "rounds.jsonl").read_text().splitlines()]
    assert lines[3]["validation"]["own"]["accuracy"][1] is None
    home = told(tmp_path)["take_home"]
    sizes = told(tmp_path)["facts"]["validation_sizes"]
    line, before = lines[home["round"] + (home["entry"] == "received")], lines[2]
    scores = line["validation"][home["entry"]]["accuracy"]
    if scores[1] is None:
        scores[1] = before["validation"][home["entry"]]["accuracy"][1]
    pooled = 100 * sum(n * score for n, score in zip(sizes, scores, strict=True)) / sum(sizes)
    assert home["held_out"][home["entry"]]["score"] == pytest.approx(pooled)


def test_without_validation_nothing_is_told_and_nothing_kept(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, "autoamp", rounds=2), data)
    local.serve()
    assert "take_home" not in told(tmp_path)
    assert "validation_sizes" not in told(tmp_path)["facts"]
    kept = {path.stem for path in (local.houses[0].folder / "models").iterdir()}
    assert kept == {"own", "received", "rounds"}


def test_models_that_are_gone_are_not_replaced_by_newer_ones(tmp_path):
    data = write_silos(tmp_path / "data")
    local = Local(tmp_path, plan_of(data, rounds=3, validation=0.3), data)
    local.serve()
    house = local.houses[0]
    chosen = house.folder / "models" / "chosen.json"
    before, kept = chosen.read_text(), json.loads((house.folder / "models" / "own.json").read_text())["score"]["round"]
    silo = open_silo(house.config, house.data, house.folder)
    silo.take({"entry": "own", "round": kept - 1, "life": "this"})
    assert chosen.read_text() == before
    silo.take({"entry": "own", "round": kept, "life": "another"})
    assert json.loads(chosen.read_text())["chosen"]["life"] == "another"


@pytest.mark.parametrize("choice", [{"entry": "../own", "round": 1}, {"entry": "own"}, {}])
def test_a_choice_that_names_no_models_is_refused(tmp_path, choice):
    data = write_silos(tmp_path / "data")
    house = Local(tmp_path, plan_of(data), data).houses[0]
    with pytest.raises(UnwillingError, match="no such models"):
        open_silo(house.config, house.data, house.folder).take(choice)
