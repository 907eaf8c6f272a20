"""FedAMP and HeurFedAMP as ordinary Flower strategies, with a ClientApp such as a Flower user writes."""

import importlib
import inspect
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from fedamp import methods
from fedamp.federation import FedAMP, HeurFedAMP, start_at_cloud_model
from fedamp.federation.flower_apps.named_arrays import Layout
from fedamp.rows import Rows
from federation.inprocess import LocalGrid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_app"


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


def samples(number):
    g = torch.Generator().manual_seed(number)
    x = torch.randn(30, 4, generator=g) + number
    return x, (x @ torch.randn(4, 2, generator=g)).argmax(1)


def client_app(number, near=True):
    app = ClientApp()

    @app.train()
    def train(message, context):
        model, (x, y) = net(), samples(number)
        penalty = start_at_cloud_model(model, message)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y) + (penalty() if near else 0)
            loss.backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": len(x), "train-loss": float(loss.detach())})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        model, (x, y) = net(), samples(number)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        accuracy = float((model.eval()(x).argmax(1) == y).float().mean())
        metrics = MetricRecord({"num-examples": len(x), "accuracy": accuracy})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def grid(tamper=lambda number, reply: reply, near=True):
    return LocalGrid({i: client_app(i, near) for i in range(3)}, tamper)


@pytest.mark.parametrize(("strategy", "method"), [(FedAMP, methods.FedAMP), (HeurFedAMP, methods.HeurFedAMP)])
def test_the_strategy_is_the_method(strategy, method):
    """Two rounds by hand: the same rows, mixed by the method's own server half."""
    made = strategy(fraction_evaluate=1.0, alpha=10.0)
    result = made.start(grid(), ArrayRecord(net().state_dict()), num_rounds=2)
    assert set(result.evaluate_metrics_clientapp) == {1, 2}
    assert 0 <= result.evaluate_metrics_clientapp[2]["accuracy"] <= 1
    assert len(made.models) == 3

    layout = Layout.of(ArrayRecord(net().state_dict()))
    plain, rows = method(alpha=10.0), Rows.cat([layout.row(ArrayRecord(net().state_dict()))] * 3)
    state = plain.server_init(rows)
    for k in (1, 2):
        state, message = plain.server_send(state, k)
        trained = []
        for i in range(3):
            model, (x, y) = net(), samples(i)
            model.load_state_dict(layout.record(message["u"][slice(i, i + 1)]).to_torch_state_dict())
            u = [p.detach().clone() for p in model.parameters()]
            strength = float(message["strength"].params[i])
            for _ in range(5):
                loss = nn.functional.cross_entropy(model(x), y)
                gradients = torch.autograd.grad(loss, list(model.parameters()))
                with torch.no_grad():
                    for p, g, anchor in zip(model.parameters(), gradients, u, strict=True):
                        p -= 0.1 * (g + strength * (p - anchor))
            trained.append(layout.row(ArrayRecord(model.state_dict())))
        reply = {"w": Rows.cat(trained), "noise": Rows.of(torch.zeros((3, 1), dtype=torch.float64))}
        state = plain.server_receive(state, reply, torch.ones(3, dtype=torch.bool))
    torch.testing.assert_close(made.state.method_state.rows["w"].params, state.rows["w"].params)
    torch.testing.assert_close(made.state.method_state.rows["w"].buffers, state.rows["w"].buffers)


def test_the_gradient_sees_the_term():
    model = net()
    content = RecordDict({"arrays": ArrayRecord(model.state_dict())})
    content["config"] = ConfigRecord({"strength": 3.0})
    penalty = start_at_cloud_model(model, Message(content, dst_node_id=1, message_type="train"))
    assert penalty().item() == 0
    before = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p += 0.5
    gradients = torch.autograd.grad(penalty(), list(model.parameters()))
    for p, u, g in zip(model.parameters(), before, gradients, strict=True):
        torch.testing.assert_close(g, 3.0 * (p.detach() - u))


def test_flowers_habits():
    """Every keyword of Flower's FedAvg, with its default, in its place."""
    theirs = inspect.signature(FedAvg.__init__).parameters
    for strategy in (FedAMP, HeurFedAMP):
        ours = inspect.signature(strategy.__init__).parameters
        for name, parameter in theirs.items():
            assert list(ours)[list(theirs).index(name)] == name
            assert ours[name].default == parameter.default
        own = {f for f in ours if f not in theirs} - {"buffers", "norm_factor", "strikes"}
        method = getattr(methods, strategy.__name__)
        assert own <= set(inspect.signature(method).parameters)
        for name in own:
            assert ours[name].default == inspect.signature(method).parameters[name].default, name


def test_a_bad_node_is_refused_and_the_others_go_on(caplog):
    def tamper(number, reply):
        if number == 2:
            arrays = dict(reply.content["arrays"])
            arrays["3.bias"] = Array(np.array([np.nan, 0], np.float32))
            reply.content["arrays"] = ArrayRecord(arrays)
        return reply

    made = FedAMP()
    made.start(grid(tamper), ArrayRecord(net().state_dict()), num_rounds=4)
    assert made.state.k == 4
    assert caplog.text.count("3.bias is not finite") == 3  # and it is out
    assert "set aside" in caplog.text


def test_statistics_are_mixed_and_no_part_of_the_distance():
    layout = Layout.of(ArrayRecord(net().state_dict()))
    assert set(layout.buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    row = layout.row(ArrayRecord(net().state_dict()))
    assert row.params.shape == (1, 4 * 5 + 5 + 5 + 5 * 2 + 2)
    back = layout.record(row).to_torch_state_dict()
    for name, value in net().state_dict().items():
        assert torch.equal(back[name], value), name
        assert back[name].dtype == value.dtype


def test_layouts_that_can_not_be_rows():
    with pytest.raises(ValueError, match="expected some of the arrays"):
        Layout.of(ArrayRecord(net().state_dict()), buffers=["nothing"])
    two = ArrayRecord({"a": Array(np.zeros(2, np.float32)), "b": Array(np.zeros(2, np.float64))})
    with pytest.raises(ValueError, match="2 parameters of 2 types"):
        Layout.of(two)


def test_the_example_app_runs_as_it_stands(monkeypatch, capsys):
    """Its own server and client apps, with Flower's messages between them."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    client = importlib.import_module("flower_app.client_app").app
    server = importlib.import_module("flower_app.server_app").app

    def node(number):
        places = {"partition-id": number, "num-partitions": 3}
        return lambda message, context: client(message, Context(1, number, places, RecordDict(), config))

    grid = LocalGrid({i: node(i) for i in range(3)})
    server(grid, Context(1, 0, {}, RecordDict(), config))
    assert "of 3 clients:" in capsys.readouterr().out
