"""What strangers ran into in their first hours; each of these was once a traceback, a lie or a silence."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedamp

QUICK = ["--rounds", "2", "--epochs", "1", "--clients", "10"]


def line(size=30, seed=0):
    x = torch.randn(size, 3, generator=torch.Generator().manual_seed(seed))
    return x, x @ torch.tensor([1.0, -2.0, 0.5])


def test_targets_in_a_column_are_targets():
    flat = [line(seed=seed) for seed in range(3)]
    column = [(x, y[:, None]) for x, y in flat]
    settings = {"model": "logistic", "method": "separate", "rounds": 10, "lr": 0.05}
    assert fedamp.run(clients=column, **settings).best == fedamp.run(clients=flat, **settings).best


X, Y = torch.randn(20, 3), torch.arange(20) % 2
BAD = {
    "lengths of one client": ([(X, Y[:15]), (X[:15], Y)], "client 0 has 20 inputs and 15 targets"),
    "two targets": ([(X, torch.randn(20, 2))], r"targets of client 0 have shape \(20, 2\)"),
    "negative label": ([(X, Y - 1)], "client 0 has the label -1"),
    "unequal features": ([(X, Y), (X[:, :2], Y)], r"client 1 has inputs of shape \(2,\)"),
    "nan": ([(X, Y), (X * torch.nan, Y)], "inputs of client 1 are not all finite"),
}


@pytest.mark.parametrize("kind", BAD)
def test_own_data_that_can_not_be(kind):
    pairs, word = BAD[kind]
    with pytest.raises(ValueError, match=word):
        fedamp.run(clients=pairs, model="logistic", rounds=1)


def test_data_as_a_list_is_told_where_to_go():
    with pytest.raises(ValueError, match=r"clients=\[\(x, y\), \.\.\.\]"):
        fedamp.run(data=[(X, Y)])


def test_an_edited_model_is_another_run(fedamp_command):
    code = (
        "from torch import nn\n"
        "def net():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, {}), nn.ReLU(), nn.Linear({}, 10))\n"
    )
    Path("editable.py").write_text(code.format(8, 8))
    first = json.loads(fedamp_command("run", *QUICK, "--model", "editable:net", "--json")[1])
    Path("editable.py").write_text(code.format(32, 32))
    sys.modules.pop("editable")
    second = json.loads(fedamp_command("run", *QUICK, "--model", "editable:net", "--json")[1])
    assert first["folder"] != second["folder"]
    assert second["facts"]["parameters"] > first["facts"]["parameters"]


@pytest.mark.parametrize("method", ["fedamp", "heurfedamp", "separate", "scaffold"])
def test_a_diverging_run_ends_with_a_word(fedamp_command, method):
    free = ("--set", "method.lam=0") if method.endswith("amp") else ()  # a pull would hold it, whatever its steps
    flags = ("--method", method, "--optimizer", "sgd", "--lr", "1e30", "--json")
    code, out, err = fedamp_command("run", *QUICK, *flags, *free)
    assert code == 0, err
    result = json.loads(out)
    assert any("is not finite" in warning for warning in result["warnings"])
    assert result["last"] == 0, "a model that is not finite has no right answer"


def test_a_diverged_regression_is_not_scored_with_the_first_model():
    how = {"model": "logistic", "method": "fedavg-ft", "optimizer": "sgd", "lr": 1e30, "rounds": 2}
    result = fedamp.run(clients=[line(seed=s) for s in range(2)], **how)
    assert np.isinf(result.scores[-1]).all()
    summary = result.to_dict()
    assert summary["last"] is None
    json.dumps(summary, allow_nan=False)


MISTAKES = {
    "name by set": (["run", "--set", "method.name=fedavg"], "--method fedavg"),
    "held out nothing": (["run", "--data", "./silos", "--label", "y", "--held-out", "0"], "held_out is 0"),
    "clients of silos": (["run", "--data", "./silos", "--label", "y", "--clients", "3"], "they are the clients"),
    "a file as folder": (["run", *QUICK, "--out", "afile"], "can't write to afile"),
    "a model of another shape": (["run", *QUICK, "--model", "shapes:wrong"], "fails on inputs of shape (2, 8, 8)"),
    "too few outputs": (["run", *QUICK, "--model", "shapes:few"], "expected (2, 10)"),
    "batch norm of one": (["run", *QUICK, "--model", "shapes:norm", "--batch-size", "1"], "more than 1 value"),
    "a list that is none": (["list", "metods"], "did you mean 'methods'?"),
    "the paper's spelling": (["run", "--method", "FedAMP"], "did you mean 'fedamp'?"),
    "a table of data": (["run", "--config", "data.toml"], "data is a dict"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes_are_one_line(fedamp_command, kind):
    Path("silos").mkdir()
    for name in "ab":
        Path(f"silos/{name}.csv").write_text("x,y\n" + "\n".join(f"{i},{i % 2}" for i in range(20)) + "\n")
    Path("afile").write_text("")
    Path("data.toml").write_text('[data]\nname = "digits"\n')
    Path("shapes.py").write_text(
        "from torch import nn\n"
        "def wrong(): return nn.Linear(3, 3)\n"
        "def few(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))\n"
        "def norm(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 10))\n"
    )
    sys.modules.pop("shapes", None)
    arguments, word = MISTAKES[kind]
    code, _, err = fedamp_command(*arguments)
    assert code == 2, err
    assert err.count("\n") == 1, err
    assert word in err


def test_no_arguments_show_help_and_no_empty_error(fedamp_command):
    _, out, err = fedamp_command()
    assert "Usage" in out + err
    assert "fedamp: \n" not in err


def test_the_record_can_be_copied(fedamp_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = fedamp_command("run", *QUICK, "--out", "a-folder-with-a-name-that-is-far-longer-than-forty-columns")
    assert "record: a-folder-with-a-name-that-is-far-longer-than-forty-columns\n" in out


def test_a_schema_that_was_agreed_on(fedamp_command):
    Path("silos").mkdir()
    for name in "ab":
        Path(f"silos/{name}.csv").write_text("x,y\n" + "\n".join(f"{i},{i % 2}" for i in range(20)) + "\n")
    fedamp_command("data", "schema", "--yes", "silos", "--label", "y", "--out", "ours.json", "--keep", "x")
    arguments = ["run", "--data", "silos", "--label", "y", "--rounds", "1", "--model", "logistic"]
    code, _, err = fedamp_command(*arguments, "--schema", "ours.json", "--out", "run", "--json")
    assert code == 0, err
    assert json.loads(Path("run/schema.json").read_text()) == json.loads(Path("ours.json").read_text())


def test_a_result_is_short_to_look_at():
    result = fedamp.run(rounds=1, clients=10, epochs=1)
    assert len(repr(result)) < 200
    regression = fedamp.run(clients=[line()] * 2, model=nn.Linear(3, 1), rounds=1)
    with pytest.raises(AttributeError, match="`best` is its lowest mean test error"):
        _ = regression.bmta
