"""`fedamp.load` gives back a run from its folder alone: its data are gone, its model is built by its code."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedamp
from fedamp.errors import UserError
from fedamp.methods import FedAMP
from runs.hospitals import run_hospitals

OLD = Path(__file__).parent.parent / "records" / "old_runs"
GIVEN = [(torch.randn(20, 3, generator=torch.Generator().manual_seed(i)), torch.arange(20) % 2) for i in range(3)]


class Net(nn.Module):
    """A model that is handed over from Python."""

    def __init__(self, hidden=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, x):
        return self.body(x)


def make_net(input_shape, num_outputs):
    return nn.Linear(input_shape[0], num_outputs)


def same(loaded, run):
    """Whether two results say the same, and hold the same models."""
    assert np.array_equal(loaded.scores, run.scores)
    assert loaded.summary == run.summary
    assert loaded.history == run.history
    assert (loaded.xi is None) == (run.xi is None)
    if run.xi is not None:
        assert torch.equal(loaded.xi, run.xi.float())
        assert torch.equal(loaded.xi_of(1), loaded.xi[:, 1])
    assert loaded.to_dict() == run.to_dict()
    assert torch.equal(loaded.chosen.models.params, run.chosen.models.params)


def test_a_run_over_files_that_are_gone(tmp_path):
    run = run_hospitals(tmp_path, alone=True)
    shutil.rmtree(tmp_path / "silos")
    loaded = fedamp.load(str(tmp_path / "run"))
    same(loaded, run)
    assert loaded.schema == run.schema
    assert loaded.method == run.method
    assert loaded.finished
    x = torch.randn(4, 5)
    for client in ("hospital-a", 1, "1"):
        assert torch.equal(loaded.client_model(client)(x), run.client_model(1)(x))


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "apfl", "heurfedamp", "separate"])
def test_a_run_of_any_method_over_a_data_set(tmp_path, method):
    run = fedamp.run(clients=5, rounds=1, epochs=1, model="logistic", method=method, out=tmp_path / "run")
    loaded = fedamp.load(tmp_path / "run")
    same(loaded, run)
    x = torch.randn(2, 8, 8)
    assert torch.equal(loaded.client_model(4)(x), run.client_model(4)(x))


@pytest.mark.parametrize("own", [True, False])
def test_a_client_without_a_score_has_none_again(tmp_path, own):
    """Neither the worst score nor the best: also where the metric is the user's, and where held-out samples choose."""

    def sensitivity(outputs, y):
        return (outputs.argmax(-1)[y == 1] == 1).double().mean()

    given = {name: (x, y * (name != "c"), x, y * (name != "c")) for name, (x, y) in zip("abc", GIVEN, strict=True)}
    metric = fedamp.Metric("sensitivity", sensitivity, unit="%") if own else "auc"
    settings = {"model": "logistic", "method": "fedamp", "rounds": 2, "validation": 0.5, "take_home": "chosen"}
    with pytest.warns(fedamp.FedampWarning, match=r"(sensitivity is nan|ROC AUC is not defined) for c"):
        run = fedamp.run(clients=given, metric=metric, out=tmp_path, **settings)
    loaded = fedamp.load(tmp_path)
    assert loaded.facts.undefined == [2]
    for entry in ("scored", "chosen"):
        scores = loaded.taken_home(entry)[1].scores
        assert np.isnan(scores).tolist() == [False, False, True]
        np.testing.assert_array_equal(scores, run.taken_home(entry)[1].scores)
    assert loaded.to_dict() == run.to_dict()


def test_a_run_that_was_stopped(tmp_path):
    settings = {"clients": 5, "rounds": 9, "epochs": 1, "model": "logistic"}
    fedamp.run(**settings, out=tmp_path / "run", observer=lambda line: line["round"] < 2)
    loaded = fedamp.load(tmp_path / "run")
    assert not loaded.finished
    assert len(loaded.scores) == 2
    loaded.predict(torch.zeros(2, 8, 8), 3)
    (tmp_path / "run" / "result.json").unlink()  # killed
    with pytest.raises(UserError, match=r"did not finish, .*fedamp resume"):
        fedamp.load(tmp_path / "run")


@pytest.mark.parametrize("given", [Net(), make_net], ids=["a module", "a function"])
def test_a_model_of_ones_own_is_given_again(tmp_path, given):
    run = fedamp.run(clients=GIVEN, model=given, rounds=1, epochs=1, out=tmp_path / "run")
    fresh = Net() if given is not make_net else make_net  # its first values may be others: they were trained away
    loaded = fedamp.load(tmp_path / "run", model=fresh)
    same(loaded, run)
    x = GIVEN[0][0]
    assert torch.equal(loaded.client_model(2)(x), run.client_model(2)(x))
    without = fedamp.load(tmp_path / "run")  # the scores need no code
    assert np.array_equal(without.scores, run.scores)
    with pytest.raises(UserError, match=r"given from Python .*model=\.\.\."):
        without.predict(x, 0)
    for wrong in (Net(hidden=4), nn.Linear(3, 2), lambda input_shape, num_outputs: Net()):
        with pytest.raises(UserError, match="is not the one that was trained in"):
            fedamp.load(tmp_path / "run", model=wrong)
    with pytest.raises(UserError, match="model is 3; expected a module"):
        fedamp.load(tmp_path / "run", model=3)


def test_code_that_has_changed_keeps_the_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "from torch import nn\n\ndef small(input_shape, num_outputs):\n    return nn.Sequential(nn.Flatten(), {})\n"
    Path("nets_in_use.py").write_text(text.format("nn.Linear(3, num_outputs)"))
    run = fedamp.run(clients=GIVEN, model="nets_in_use:small", rounds=1, epochs=1, out="run")
    assert torch.equal(fedamp.load("run").client_model(0)(GIVEN[0][0]), run.client_model(0)(GIVEN[0][0]))
    sys.modules.pop("nets_in_use")
    Path("nets_in_use.py").write_text(text.format("nn.Linear(3, num_outputs), nn.Tanh()"))
    changed = fedamp.load("run")
    assert np.array_equal(changed.scores, run.scores)
    with pytest.raises(UserError, match="nets_in_use:small is not the one that was trained in run"):
        changed.client_model(0)
    sys.modules.pop("nets_in_use")
    Path("nets_in_use.py").unlink()
    with pytest.raises(UserError, match="module 'nets_in_use' not found"):
        fedamp.load("run").client_model(0)


def test_frozen_values_are_nobodys_record(tmp_path):
    def frozen(value):
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        nn.init.constant_(net[0].weight, value).requires_grad_(False)
        nn.init.zeros_(net[0].bias).requires_grad_(False)
        nn.init.zeros_(net[1].weight)
        nn.init.zeros_(net[1].bias)
        return net

    run = fedamp.run(clients=GIVEN, model=frozen(1.0), rounds=1, epochs=1, out=tmp_path / "run")
    x = GIVEN[0][0]
    assert torch.equal(fedamp.load(tmp_path / "run", model=frozen(1.0)).client_model(0)(x), run.client_model(0)(x))
    with pytest.warns(UserWarning, match=r"values that are not trained, .*\(0\.weight, 0\.bias\)"):
        fedamp.load(tmp_path / "run", model=frozen(2.0))


@dataclasses.dataclass(frozen=True)
class Mine(FedAMP):
    """A method of one's own: only its name is in the folder."""


def test_a_method_of_ones_own(tmp_path):
    run = fedamp.run(clients=GIVEN, model="logistic", method=Mine(), rounds=1, epochs=1, out=tmp_path / "run")
    loaded = fedamp.load(tmp_path / "run")
    assert loaded.method is None
    same(loaded, run)


@pytest.mark.parametrize("name", ["finished", "interrupted", "of_silos"])
def test_folders_of_an_earlier_version(name):
    loaded = fedamp.load(OLD / name)
    told = json.loads((OLD / name / "result.json").read_text())
    assert loaded.summary.per_client == told["per_client"]
    assert loaded.finished == told["finished"]
    if name == "of_silos":
        said = loaded.predict(OLD / "silos" / "south.csv", "south")
        assert said.classes == loaded.schema.labels
    else:
        assert len(loaded.predict(np.zeros((3, 8, 8)), 2)) == 3


def test_folders_that_are_no_run(tmp_path):
    for name in ("fedamp-seed0", "separate-seed0"):
        shutil.copytree(OLD / "finished", tmp_path / "compared" / name)
    (tmp_path / "file").write_text("")
    (tmp_path / "federation").mkdir()
    for path in (OLD / "finished").iterdir():
        shutil.copy(path, tmp_path / "federation")
    description = tmp_path / "federation" / "description.json"
    description.write_text(json.dumps({**json.loads(description.read_text()), "setting": {"name": "federation"}}))
    for folder, words in {
        "compared": "give one of the runs below it: fedamp-seed0, separate-seed0$",
        "nothing": "there is no folder",
        "file": "is a file; expected the folder of a run",
        "federation": "record of a federation: each silo has its model at home.*fedamp silo predict",
    }.items():
        with pytest.raises(UserError, match=words):
            fedamp.load(tmp_path / folder)
    damaged = tmp_path / "compared" / "fedamp-seed0"
    (damaged / "models.safetensors").write_bytes(b"rubbish")
    with pytest.raises(UserError, match="damaged"):
        fedamp.load(damaged)


@pytest.mark.parametrize("version", ["this one", "an earlier one"])
def test_a_schema_that_is_gone_is_no_run_without_one(version, tmp_path):
    """Rows would not be scaled, and the model's answers would be wrong without a word."""
    run_hospitals(tmp_path)
    folder = tmp_path / "run"
    (folder / "schema.json").unlink()
    if version == "an earlier one":
        told = json.loads((folder / "result.json").read_text())
        assert told["facts"].pop("encoded") is True
        (folder / "result.json").write_text(json.dumps(told))
    for use in (lambda: fedamp.load(folder), lambda: fedamp.join(folder, tmp_path / "new.csv")):
        with pytest.raises(UserError, match=r"schema.json is missing: the folder is damaged"):
            use()


@pytest.mark.parametrize("version", ["this one", "an earlier one"])
def test_pictures_with_a_label_of_another_name_have_no_schema(version, tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Array2D((4, 4), "float32"), "digit": datasets.Value("int64")})
    y = [0, 1] * 10
    pictures = datasets.Dataset.from_dict({"image": [np.full((4, 4), each) for each in y], "digit": y}, features)
    settings = {"clients": [pictures] * 2, "label": "digit", "model": "logistic", "rounds": 1, "steps": 1}
    result = fedamp.run(**settings, out=tmp_path / "run")
    if version == "an earlier one":
        path = tmp_path / "run" / "result.json"
        told = json.loads(path.read_text())
        assert told["facts"].pop("encoded") is False
        path.write_text(json.dumps(told))
    again = fedamp.load(tmp_path / "run")
    assert again.schema is None
    assert torch.equal(again.models["own"].params, result.models["own"].params)


@pytest.mark.parametrize(
    "command",
    [["predict", "run", "new.npz", "--client", "0"], ["export", "run", "--all"], ["join", "run", "--data", "new.npz"]],
)
def test_a_folder_without_its_digests_is_damaged(fedamp_command, tmp_path, command):
    fedamp.run(clients=5, rounds=1, epochs=1, model="logistic", out=tmp_path / "run")
    np.savez(tmp_path / "new.npz", x=np.zeros((20, 8, 8), "float32"), y=np.arange(20) % 10)
    (tmp_path / "run" / "inputs.json").unlink()
    code, _, err = fedamp_command(*command)
    assert code == 2
    assert "run has no inputs.json, by which the model that was trained is known; the folder is damaged" in err
    assert len(err.splitlines()) == 1
