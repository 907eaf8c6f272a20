"""Balanced class weights: those of the reference, of each client's own samples, and torch's own weighted loss."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

import fedamp
from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.runs.setup import assemble
from fedamp.training.tasks_and_metrics import CLASSIFICATION
from helpers import data


def rare(sizes=(40, 30, 25)):
    """Clients of three classes, each with other shares; the last one lacks a class."""
    stream = torch.Generator().manual_seed(0)
    pairs = []
    for i, size in enumerate(sizes):
        y = (torch.arange(size) % (7 + i) == 0).long() + (torch.arange(size) % 11 == 0).long() * (i < 2)
        pairs.append((torch.randn(size, 6, generator=stream) + y[:, None], y))
    return pairs


def test_weights_are_the_references_of_the_clients_own_classes():
    clients = Clients.of(rare()).balanced(3)
    for i, (_, y) in enumerate(rare()):
        present = np.unique(y)
        expected = compute_class_weight("balanced", classes=present, y=y.numpy())
        assert clients.class_weights[i, present].numpy() == pytest.approx(expected)
        assert clients.weights(i, y).mean() == pytest.approx(1)
    assert clients.class_weights[2, 2] == 0
    assert clients.take(torch.tensor([2, 0])).class_weights.equal(clients.class_weights[[2, 0]])


def test_the_weighted_loss_is_torchs():
    output, y, weight = torch.randn(2, 9, 3), torch.randint(3, (2, 9)), torch.rand(2, 3) + 0.1
    each = torch.stack([weight[i][y[i]] for i in range(2)])
    expected = [F.cross_entropy(output[i], y[i], weight=weight[i]) for i in range(2)]
    torch.testing.assert_close(torch.stack(expected), CLASSIFICATION.stacked_loss(output, y, each))
    torch.testing.assert_close(expected[1], CLASSIFICATION.loss(output[1], y[1], each[1]))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_all_at_once_one_at_a_time_and_a_plain_loop_train_alike(dropout):
    """With dropout the model is under vmap; without, side by side, where a plain loop of torch is the third way."""
    torch.manual_seed(0)
    layers = [nn.Linear(6, 8), nn.Tanh(), *([nn.Dropout(dropout)] if dropout else []), nn.Linear(8, 3)]
    module, pairs = nn.Sequential(*layers), rare()
    given = [(x, y, x, y) for x, y in pairs]
    settings = {"method": "separate", "optimizer": "sgd", "lr": 0.1, "batch_size": 1000, "epochs": 3, "rounds": 1}
    runs = {
        engine: fedamp.run(clients=given, model=module, class_weights="balanced", engine=engine, **settings)
        for engine in ("stacked", "loop")
    }
    rows = {engine: run.models["own"].params for engine, run in runs.items()}
    torch.testing.assert_close(rows["stacked"], rows["loop"], rtol=0, atol=1e-6)
    plain = fedamp.run(clients=given, model=module, **settings).models["own"].params
    assert (plain - rows["loop"]).abs().max() > 1e-3
    if dropout:
        return
    for i, (x, y) in enumerate(pairs):
        model = copy.deepcopy(module)
        weight = Clients.of(pairs).balanced(3).class_weights[i].float()
        step = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            step.zero_grad()
            F.cross_entropy(model(x), y, weight=weight).backward()
            step.step()
        ours = runs["loop"].client_model(i).state_dict()
        for name, value in model.state_dict().items():
            torch.testing.assert_close(ours[name], value, rtol=0, atol=1e-6)


def test_the_loss_of_scores_stays_unweighted():
    given = [(x, y, x, y) for x, y in rare()]
    run = fedamp.run(clients=given, class_weights="balanced", method="separate", rounds=1, epochs=1)
    model, (x, y) = run.client_model(0), rare()[0]
    with torch.no_grad():
        expected = F.cross_entropy(model(x), y).item()
    assert run.history[1]["test"]["own"]["loss"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("sizes", [(40, 30, 25), (30, 30, 30)])
def test_what_a_method_sees_of_the_training_loss_is_the_weighted_one(engine, sizes):
    pairs = rare(sizes)
    config = fedamp.RunConfig(data="given", setting="given", clients=3, class_weights="balanced", engine=engine)
    setup = assemble(config, replace(Clients.of(pairs), test=Clients.of(pairs).train))
    losses = setup.trainer.local(setup.clients, 1).loss(setup.w)
    for i, (x, y) in enumerate(pairs):
        model = setup.trainer.model.fresh().eval()
        weight = setup.clients.class_weights[i].float()
        assert losses[i].item() == pytest.approx(F.cross_entropy(model(x), y, weight=weight).item(), rel=1e-5)


def test_a_regression_has_no_classes():
    x = data((20,)).x
    with pytest.raises(UserError, match="class_weights is 'balanced', but the task is a regression"):
        fedamp.run(clients=[(x, x[:, 0])], class_weights="balanced")
