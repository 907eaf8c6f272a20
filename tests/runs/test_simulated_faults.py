"""Dirty labels, poisoned clients, numbers instead of classes."""

import numpy as np
import pytest
import torch
from torch import nn

import fedamp
from fedamp.config import RunConfig
from fedamp.rows import Rows
from fedamp.runs.setup import assemble
from fedamp.runs.simulated_faults import poison
from helpers import SOME_AT_ONCE, data

QUICK = {"rounds": 2, "epochs": 1, "clients": 10}


def wrong(clean, noisy, i):
    """Return how many of client i's training labels differ, and whether its inputs are the same."""
    a, b = clean.train[i], noisy.train[i]
    return int((clean.y[a] != noisy.y[b]).sum()), torch.equal(clean.x[a], noisy.x[b])


def test_the_asked_share_of_labels_is_wrong():
    clean = data((20, 30, 10))
    noisy = clean.with_label_noise(0.3, 3, seed=5)
    assert [wrong(clean, noisy, i) for i in range(3)] == [(6, True), (9, True), (3, True)]
    assert noisy.y.max() <= 2
    assert torch.equal(noisy.y, clean.with_label_noise(0.3, 3, seed=5).y)
    assert not torch.equal(noisy.y, clean.with_label_noise(0.3, 3, seed=6).y)


def test_noise_on_given_clients_alone():
    clean = data((20, 30, 10))
    noisy = clean.with_label_noise(1.0, 3, seed=0, who=[1])
    assert [wrong(clean, noisy, i)[0] for i in range(3)] == [0, 30, 0]


def test_wrong_labels_are_spread_over_the_other_classes():
    clean = data((3000,))
    noisy = clean.with_label_noise(1.0, 3, seed=0)
    offset = (noisy.y[noisy.train[0]] - clean.y[clean.train[0]]) % 3
    assert torch.bincount(offset, minlength=3)[0] == 0
    assert abs(int((offset == 1).sum()) - 1500) < 150


def test_noise_leaves_tests_and_other_holders_alone():
    made = [assemble(RunConfig(label_noise=noise, noisy_clients=[0], **QUICK)).clients for noise in (0.0, 0.5)]
    clean, noisy = made
    for i in range(10):
        assert torch.equal(clean.y[clean.test[i]], noisy.y[noisy.test[i]])
        assert wrong(clean, noisy, i)[0] == (round(0.5 * len(clean.train[0])) if i == 0 else 0)


def test_noise_hurts():
    plain, noisy = (fedamp.run(method="separate", rounds=4, clients=10, label_noise=n) for n in (0.0, 0.9))
    assert noisy.bmta < plain.bmta - 10


def test_poison_flips_and_scales_models_and_nothing_else():
    reply = {"w": Rows(torch.ones(3, 4), torch.ones(3, 2)), "samples": Rows.of(torch.ones(3, 1))}
    sent = poison([5, 9], 10.0, num_params=4)(reply, torch.tensor([1, 5, 7]))
    assert sent["w"].params.tolist() == [[1.0] * 4, [-10.0] * 4, [1.0] * 4]
    assert torch.equal(sent["w"].buffers, reply["w"].buffers)
    assert torch.equal(sent["samples"].params, reply["samples"].params)
    assert reply["w"].params.min() == 1
    assert poison([9], 10.0, 4)(reply, torch.tensor([1, 5, 7])) is reply


@pytest.mark.parametrize("name", SOME_AT_ONCE)
def test_poisoned_clients_run_through_every_method(name):
    result = fedamp.run(method=name, poisoned=[3], lr=0.001, **QUICK)
    honest = [value for i, value in enumerate(result.summary.per_client) if i != 3]
    assert result.bmta == pytest.approx(np.mean(honest))
    assert result.facts.poisoned == [3]


def test_poison_reaches_those_who_average_and_not_those_who_train_alone():
    taken = {"poisoned": [0, 1], "replies": "any"}
    hurt = {name: fedamp.run(method=name, **taken, **QUICK).bmta for name in ("separate", "fedavg")}
    fine = {name: fedamp.run(method=name, **QUICK) for name in ("separate", "fedavg")}
    assert hurt["separate"] == pytest.approx(np.mean(fine["separate"].summary.per_client[2:]), abs=1e-6)
    assert hurt["fedavg"] < fine["fedavg"].bmta - 10


def test_labels_are_turned_around_for_those_who_are_asked_for():
    clean = data((20, 30, 10))
    flipped = clean.with_flipped_labels(3, who=[1])
    assert torch.equal(flipped.y[flipped.train[1]], 2 - clean.y[clean.train[1]])
    assert [wrong(clean, flipped, i) for i in (0, 2)] == [(0, True), (0, True)]
    assert wrong(clean, flipped, 1)[1]
    assert torch.equal(flipped.y[: len(clean.y)], clean.y)  # whoever shares these samples has them as they were
    assert clean.with_flipped_labels(3, who=[]) is clean


def test_an_attack_by_labels_changes_what_is_learnt_and_not_what_is_sent():
    attack = {"poisoned": [0], "attack": "labels"}
    clean, flipped = (assemble(RunConfig(**QUICK, **more)) for more in ({}, attack))
    mine = clean.clients.train[0], flipped.clients.train[0]
    assert torch.equal(flipped.clients.y[mine[1]], 9 - clean.clients.y[mine[0]])
    assert torch.equal(flipped.clients.y[flipped.clients.test[0]], clean.clients.y[clean.clients.test[0]])
    reply = {"w": Rows(torch.ones(1, flipped.trainer.model.num_params), torch.ones(1, 0))}
    assert flipped.tamper(reply, torch.tensor([0])) is reply
    result = fedamp.run(method="separate", **QUICK, **attack)
    assert result.summary.per_client[0] < 30  # it is tested with the right labels, and enters no mean
    assert result.bmta == pytest.approx(np.mean(result.summary.per_client[1:]))


def test_an_attack_by_labels_reaches_those_who_average():
    attack = {"poisoned": [0, 1, 2, 3], "attack": "labels"}
    settings = {"method": "fedavg", "setting": "iid", "clients": 10, "rounds": 4, "epochs": 5, "lr": 0.01}
    hurt, fine = (fedamp.run(**settings, **more) for more in (attack, {}))
    assert hurt.bmta < np.mean(fine.summary.per_client[4:]) - 5


def test_the_attack_is_written_down_only_if_it_is_not_the_usual_one():
    assert "attack" not in RunConfig(poisoned=(1,)).to_dict()
    assert RunConfig(poisoned=(1,), attack="labels").to_dict()["attack"] == "labels"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"attack": "labels"}, "nobody is poisoned"),
        ({"attack": "labels", "poisoned": [1], "poison_scale": 3.0}, "poison_scale is 3"),
        ({"attack": "words", "poisoned": [1]}, "choose from labels, models"),
        ({"label_noise": 1.5}, "label_noise is 1.5"),
        ({"label_noise": 0.1, "noisy_clients": [99]}, "99"),
        ({"poisoned": [99]}, "poisoned client is 99"),
        ({"poisoned": "a,b"}, "numbers of clients"),
        ({"poisoned": range(10)}, "all clients are poisoned"),
        ({"poison_scale": 0}, "poison_scale is 0"),
        ({"poison_scale": 2.0}, "poison_scale is 2, but nobody is poisoned"),
        ({"noisy_clients": [3]}, "noisy_clients is 3, but no labels are wrong"),
        ({"task": "clustering"}, "choose from auto"),
    ],
)
def test_bad_requests(settings, word):
    with pytest.raises(ValueError, match=word):
        fedamp.run(**{**QUICK, **settings})


def houses(number: int, size: int = 60):
    """Prices that follow a rule of their own in each of two regions."""
    g = torch.Generator().manual_seed(number)
    x = torch.randn(size, 3, generator=g)
    rule = torch.tensor([[2.0, -1.0, 0.5], [2.0, 1.0, -0.5]])[number % 2]
    return x, x @ rule + 0.1 * torch.randn(size, generator=g)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_regression_is_best_where_the_error_is_lowest(engine):
    clients = [houses(i) for i in range(4)]
    result = fedamp.run(clients=clients, model="logistic", method="fedamp", rounds=20, lr=0.05, engine=engine)
    assert result.facts.task == "regression"
    assert result.summary.metric == "rmse"
    table = result.scores
    assert result.summary.best == pytest.approx(table.mean(1).min())
    assert result.summary.worst == pytest.approx(max(result.summary.per_client))
    assert result.summary.best < 0.5 < table.mean(1)[0] + 0.5
    assert result.to_dict()["bmta"] is None
    x, y = houses(0)
    error = (result.client_model(0)(x).squeeze(-1) - y).square().mean().sqrt()
    assert error < 0.6


def test_wrong_labels_are_for_classes():
    with pytest.raises(ValueError, match="label_noise is for classification"):
        fedamp.run(clients=[houses(0), houses(1)], model=nn.Linear(3, 1), label_noise=0.1)
    with pytest.raises(ValueError, match="attack is 'labels', which is for classification"):
        fedamp.run(clients=[houses(0), houses(1)], model=nn.Linear(3, 1), poisoned=[1], attack="labels")
