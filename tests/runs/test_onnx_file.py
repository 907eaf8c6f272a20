"""ONNX of a client says what the client's own model says; what differs is not written."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

import fedamp
from fedamp import models
from fedamp.errors import UserError
from fedamp.runs.in_use import onnx_file
from fedamp.runs.in_use.predictor import Predictor
from runs.hospitals import held_out, run_hospitals, write_rows
from runs.test_predict import accuracy, encoded

onnxruntime = pytest.importorskip("onnxruntime")


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.slow
def test_every_clients_own_and_its_score(tmp_path, fedamp_command):
    """On the very rows that the score is of; years of eight digits would be lost in float32."""
    run = run_hospitals(tmp_path)
    code, out, err = fedamp_command("export", tmp_path / "run", "--all", "--format", "both", "--out", tmp_path / "all")
    assert (code, err) == (0, "")
    files = sorted(path.name for path in (tmp_path / "all").iterdir())
    stems = ["client-0-hospital-a", "client-1-hospital-a", "client-2-north"]
    assert files == sorted(f"{stem}.{ending}" for stem in stems for ending in ("json", "onnx", "safetensors"))
    assert out.count("\n") == 6
    for number, stem in enumerate(stems):
        spec = json.loads((tmp_path / "all" / f"{stem}.json").read_text())
        assert (spec["client"], spec["name"]) == (number, run.facts.names[number])
        assert spec["layers"] is not None
        rows, truth = held_out(tmp_path, run.config, number)
        x = np.array([encoded(spec, row) for row in rows])
        (shares,) = session(tmp_path / "all" / f"{stem}.onnx").run(["probabilities"], {"x": x})
        said = run.predict(write_rows(tmp_path / "new.csv", rows, skip=("target", "patient")), number)
        assert np.abs(shares - said.probabilities).max() < 1e-6
        told = [spec["onnx"]["output"]["classes"][place] for place in shares.argmax(1)]
        assert accuracy(told, truth) == pytest.approx(run.chosen.scores[number])
        assert spec["score"]["test"] == run.chosen.scores[number]


def test_values_come_in_their_own_unit(tmp_path):
    run = run_hospitals(tmp_path, "regression", method="fedavg")
    (path,) = run.export("north", tmp_path / "mine.onnx", format="onnx")
    spec = json.loads((tmp_path / "mine.json").read_text())
    rows, _ = held_out(tmp_path, run.config, 2)
    (values,) = session(path).run(None, {"x": np.array([encoded(spec, row) for row in rows])})
    wanted = run.predict(write_rows(tmp_path / "new.csv", rows, skip=("target", "patient")), 2).values
    assert values == pytest.approx(wanted, rel=1e-6)
    assert spec["onnx"]["output"] == {"name": "values", "unit": "the target's own"}


def asked(module, shape, **more):
    return Predictor(module.eval(), "client 0", "classification", shape, **more)


def net(name, shape):
    module = models.build(models.load_builder(name), shape, 3, seed=0)
    for part in module.modules():  # statistics that a pass would have moved
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -1, 1)
            nn.init.uniform_(part.running_var, 0.5, 2)
    return module


@pytest.mark.parametrize(
    ("name", "shape"),
    [("logistic", (4,)), ("cnn-small", (8, 8)), pytest.param("cnn", (28, 28), marks=pytest.mark.slow),
     pytest.param("resnet18", (3, 16, 16), marks=pytest.mark.slow)],
)  # fmt: skip
def test_the_models_of_the_zoo_for_any_number_of_rows(name, shape, tmp_path):
    one = asked(net(name, shape), shape, shift=(1.0,), scale=(16.0,))
    (tmp_path / "it.onnx").write_bytes(onnx_file.onnx_model(one)[0])
    for count in (1, 5):
        x = np.random.default_rng(count).integers(0, 17, (count, *shape)).astype(np.float32)
        (shares,) = session(tmp_path / "it.onnx").run(None, {"x": x})
        np.testing.assert_allclose(shares, one.predict(x).probabilities, atol=1e-5)


def test_a_module_of_ones_own(tmp_path):
    """With an Embedding, so that rows are indices; given from Python, so that only Python can build it again."""
    clients = [(torch.randint(0, 7, (30, 3)), torch.arange(30) % 2) for _ in range(2)]
    own = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(12, 2))
    fedamp.run(clients=clients, model=own, rounds=1, epochs=1, out=tmp_path / "run")
    run = fedamp.load(tmp_path / "run", model=own)
    path = run.export(1, format="both")[-1]
    assert path == tmp_path / "run" / "client-1.onnx"
    x = clients[1][0][:4]
    (shares,) = session(path).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(shares, run.predict(x, 1).probabilities, atol=1e-6)


class Odd(nn.Linear):
    """A module that ONNX has no words for: what it does depends on the numbers it sees."""

    def forward(self, x):
        return super().forward(x if float(x.sum()) > 0 else -x)


def test_what_can_not_be_written_is_said_and_not_written(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"client 0 can't be written as ONNX .* export it as safetensors"):
        onnx_file.onnx_model(asked(Odd(2, 3), (2,)))
    stream = torch.Generator().manual_seed(0)
    clients = [(torch.randn(20, 2, generator=stream), torch.arange(20) % 2) for _ in range(2)]
    run = fedamp.run(clients=clients, model="logistic", method="separate", rounds=3)  # the two models differ
    one = onnx_file.onnx_model(run.predictor(1))[0]
    monkeypatch.setattr(onnx_file, "_exported", lambda *_: one)  # the graph of another client
    with pytest.raises(UserError, match=r"gives other answers, by up to .*; not written"):
        run.export(0, tmp_path / "mine", format="both")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(onnx_file, "_exported", lambda *_: b"rubbish")
    with pytest.raises(UserError, match=r"onnxruntime can't run the model of client 0 .*; not written"):
        run.export(0, tmp_path / "mine", format="onnx")
    assert not list(tmp_path.iterdir())


def test_without_the_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(onnx_file, "PACKAGES", ("onnx", "no_such_runtime"))
    with pytest.raises(UserError, match=r"^no_such_runtime is not installed; run: pip install 'fedamp\[onnx\]'$"):
        onnx_file.onnx_model(asked(nn.Linear(2, 3), (2,)))
