"""AutoAMP as people meet it: probes, late, poisoned and opposed clients, rules that differ."""

import numpy as np
import pytest
import torch
from torch import nn

import fedamp
from fedamp.data.clients import Clients
from fedamp.methods import make_method
from fedamp.methods.attention import misfit
from fedamp.methods.attention.bias_variance import collaboration
from fedamp.methods.attention.misfit import left_alone
from fedamp.models.flat_model import FlatModel
from fedamp.training.batches import Batching
from fedamp.training.config import TrainingConfig
from fedamp.training.optimizers import Optimizer
from fedamp.training.trainer import Trainer
from helpers import Federation, assert_states_equal, data, mlp

SIZES = (12, 20, 16, 30, 24)
QUICK = {"model": "mlp", "batch_size": 20, "engine": "stacked"}


def silos(rules: list[np.ndarray], seed: int = 0, rows: int = 100) -> list[tuple[np.ndarray, ...]]:
    """Clients of normal features, each under its own rule y = [x.a > 0]: (x, y, x_test, y_test)."""
    g, made = np.random.default_rng(seed), []
    for rule in rules:
        x = g.normal(size=(rows + 400, len(rule))).astype(np.float32)
        y = (x @ rule > 0).astype(np.int64)
        made.append((x[:rows], y[:rows], x[rows:], y[rows:]))
    return made


def rule(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=8)


def last(result: fedamp.Result, name: str) -> list[float]:
    return [line for line in result.history if name in line][-1][name]


def test_the_first_two_rounds_are_a_probe_from_one_model():
    a = Federation.of("autoamp", clients=data(SIZES), module=mlp())
    for half in (1, 2):
        _, message = a.method.server_send(a.server, half)
        assert torch.equal(message["half"].params[:, 0], torch.full((5,), float(half), dtype=torch.float64))
        torch.testing.assert_close(message["u"].params, a.trainer.model.row().repeat(5).params, rtol=0, atol=1e-12)
        a.play()
    _, message = a.method.server_send(a.server, 3)
    assert not message["half"].params.any()
    mean = (a.server.rows["first"].params + a.server.rows["second"].params) / 2
    assert torch.equal(a.server.rows["w"].params, mean)
    torch.testing.assert_close(message["u"].params, a.server.pairs["xi"] @ mean)


def test_a_late_client_probes_from_the_same_start_and_gets_the_weights_of_its_halves():
    """It probes from the same start as everyone did: only then are half models comparable."""
    early = Federation.of("autoamp", clients=data(SIZES), module=mlp()).play(2)
    late = Federation.of("autoamp", clients=data(SIZES), module=mlp())
    away = torch.tensor([True, True, True, True, False])
    late.play(3, present=away)
    weights = late.server.pairs["xi"]
    assert weights[4].tolist() == [0, 0, 0, 0, 1]
    assert not weights[:4, 4].any()
    first, second = late.server.rows["first"].params[:4], late.server.rows["second"].params[:4]
    assert torch.equal(first, early.server.rows["first"].params[:4])
    assert torch.equal(second, early.server.rows["second"].params[:4])
    late.play(2)
    rows = late.server.rows
    assert rows["played"].params[:, 0].tolist() == [5, 5, 5, 5, 2]
    halves = (rows[name].params for name in ("first", "second"))
    start, samples = late.server.shared["start"].params, torch.tensor(SIZES, dtype=torch.float64)
    expected = collaboration(*halves, start, samples, torch.full((5,), 0.3, dtype=torch.float64))
    torch.testing.assert_close(late.server.pairs["xi"], expected.xi)


def test_an_absent_client_keeps_its_row_and_is_still_heard():
    a = Federation.of("autoamp", clients=data(SIZES), module=mlp()).play(2)
    row, xi = a.server.rows["w"].params[1].clone(), a.server.pairs["xi"].clone()
    a.play(present=torch.tensor([True, False, True, True, True]))
    assert torch.equal(a.server.rows["w"].params[1], row)
    assert torch.equal(a.server.pairs["xi"], xi)


def test_nobody_differs_is_fedprox_with_fedavgs_weights():
    clients = silos([rule(1)] * 10, seed=3)
    result = fedamp.run(clients=clients, method="autoamp", rounds=4, **QUICK)
    np.testing.assert_allclose(np.asarray(result.xi[-1]), 0.1, atol=1e-6)


@pytest.mark.parametrize("count", [2, 3, 10])
def test_opposed_clients_do_not_listen_to_each_other(count):
    signs = [1 if i % 2 == 0 else -1 for i in range(count)]
    result = fedamp.run(clients=silos([sign * rule(1) for sign in signs]), method="autoamp", rounds=3, **QUICK)
    xi = np.asarray(result.xi[-1])
    across = np.array(signs)[:, None] != np.array(signs)
    assert xi[across].max() == 0
    assert last(result, "opposed") == across.sum(1).tolist()


def test_clients_whose_rules_differ_end_up_alone():
    """After one round they look as if they could share; later their cloud models stop fitting them."""
    clients = silos([rule(seed) for seed in range(1, 5)])
    result = fedamp.run(clients=clients, method="autoamp", rounds=18, **QUICK)
    before, after = (np.asarray(xi).diagonal().mean() for xi in (result.xi[10], result.xi[-1]))
    assert before < 0.8
    assert after > 0.9
    assert any("fits the client's samples no better" in event for line in result.history for event in line["events"])


def test_clients_whose_labels_are_wrong_go_on_listening(monkeypatch):
    """Their cloud models stop fitting them too: a second look shows that alone they would not fit better."""
    looks, plain = [], misfit.left_alone
    monkeypatch.setattr(misfit, "left_alone", lambda *given: looks.append(plain(*given)) or looks[-1])
    clients = silos([rule(1)] * 4)
    result = fedamp.run(clients=clients, method="autoamp", rounds=18, label_noise=0.3, **QUICK)
    assert len(looks) == 1  # in round 17, and in no other
    assert np.array_equal(result.xi[2], result.xi[-1])
    assert not any(
        "fits the client's samples no better" in event for line in result.history for event in line["events"]
    )


def test_clients_that_learn_slowly_go_on_listening(monkeypatch):
    """A logistic model's loss falls for hundreds of steps, whoever trains it: that it falls alone too is no sign."""
    looks, plain = [], misfit.left_alone
    monkeypatch.setattr(misfit, "left_alone", lambda *given: looks.append(plain(*given)) or looks[-1])
    clients = silos([rule(1)] * 3, rows=48)
    result = fedamp.run(clients=clients, method="autoamp", rounds=18, **{**QUICK, "model": "logistic"})
    assert len(looks) == 1
    assert (looks[0] < misfit.ALONE).any()
    assert np.array_equal(result.xi[2], result.xi[-1])


def test_a_second_look_is_at_samples_that_were_not_trained_on():
    """Alone the loss on the other half falls if there is a rule to learn, and rises if labels mean nothing."""
    torch.manual_seed(0)
    x, u = torch.randn(200, 8).double(), nn.Linear(8, 2).double()
    chance = torch.randint(2, (200,))
    for y, size, falls in (((x[:, 0] > 0).long(), 50, True), (chance, 50, False), (chance, 3, None)):
        clients = Clients(x, y, tuple(each[:size] for each in torch.arange(200).split(50)), (0, 1, 2, 3))
        trainer = Trainer(FlatModel(u), TrainingConfig(Optimizer("adam", 0.05), Batching(10, epochs=5)))
        rows, none = trainer.model.row().repeat(4), torch.zeros(4, 1, dtype=torch.float64)
        left = left_alone(rows, none, trainer.local(clients, 17))
        assert (left == 1).all() if falls is None else ((left < 1) == falls).all()


def test_a_poisoned_client_is_not_heard():
    clients = silos([rule(1)] * 6)
    settings = {"clients": clients, "method": "autoamp", "rounds": 6, "replies": "any", **QUICK}
    result = fedamp.run(poisoned=(2,), poison_scale=1000.0, **settings)
    xi = np.asarray(result.xi[-1])
    others = [0, 1, 3, 4, 5]
    assert xi[others, 2].max() == 0
    np.testing.assert_allclose(xi[np.ix_(others, others)], 0.2, atol=1e-6)
    assert any("client 2: its probe went" in event for line in result.history for event in line["events"])


def test_one_client_and_one_sample_are_defined():
    x, y, *test = silos([rule(1)])[0]
    for sizes in ([100], [1, 100], [1, 1, 2]):
        clients = [(x[:size], y[:size], *test) for size in sizes]
        result = fedamp.run(clients=clients, method="autoamp", rounds=4, **QUICK)
        assert np.isfinite(np.asarray(result.xi[-1])).all()
        np.testing.assert_allclose(np.asarray(result.xi[-1]).sum(1), 1, atol=1e-6)


def test_stacked_is_the_loop_over_a_whole_run():
    clients = silos([rule(1), rule(1), -rule(1), rule(2)])
    runs = [
        fedamp.run(clients=clients, method="autoamp", rounds=5, engine=e, batch_size=20) for e in ("stacked", "loop")
    ]
    for one, other in zip(*(run.history for run in runs), strict=True):
        assert one.get("self_weight") == pytest.approx(other.get("self_weight"), abs=1e-3)
        for entry in one["test"]:
            here, there = (line["test"][entry]["accuracy"] for line in (one, other))
            assert here == pytest.approx(there, abs=0.02)


def test_its_two_numbers_are_checked():
    for wrong in ({"pull": -1}, {"bias_weight": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            make_method("autoamp", **wrong)
    assert_states_equal(*(Federation.of("autoamp").play().server for _ in range(2)))


def test_tiny_clients_under_batchnorm_are_trained():
    """A half of one sample could not be."""
    x, y, *test = silos([rule(1)])[0]
    module = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    clients = [(x[:size], y[:size], *test) for size in (2, 3, 4, 40)]
    result = fedamp.run(clients=clients, model=module, method="autoamp", rounds=3)
    assert np.isfinite(np.asarray(result.xi[-1])).all()


def test_until_its_probe_ends_a_client_takes_home_its_own_model():
    a = Federation.of("autoamp", clients=data(SIZES), module=mlp())
    a.play()
    assert torch.equal(a.models("received"), a.models("own"))
    a.play(2)
    assert not torch.equal(a.models("received"), a.models("own"))


def test_halves_that_nearly_agree_have_weights():
    g = torch.Generator().manual_seed(0)
    theta = torch.randn(3, 50, generator=g)[torch.arange(9) % 3]
    a, b = (theta + 1e-8 * torch.randn(9, 50, generator=g) for _ in range(2))
    found = collaboration(a, b, torch.zeros(1, 50), torch.full((9,), 10.0), torch.full((9,), 30.0))
    assert found.xi.sum(1).tolist() == pytest.approx([1] * 9)
    same = torch.arange(9)[:, None] % 3 == torch.arange(9) % 3
    assert found.xi[~same].max() < 1e-6
