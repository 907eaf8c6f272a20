"""A model that leaves the folder is the model that was scored."""

import json
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

import fedamp
from fedamp.config import RunConfig
from fedamp.models.flat_model import FlatModel
from fedamp.models.rebuild import build_layers, describe_layers
from fedamp.runs.in_use.export import export_client, how_to_build, write_model

QUICK = {"rounds": 1, "epochs": 1, "clients": 10}


@pytest.mark.parametrize("model", ["mlp", "logistic", "cnn-small"])
def test_the_documented_five_lines(model, tmp_path):
    result = fedamp.run(model=model, out=tmp_path / "run", **QUICK)
    path = export_client(tmp_path / "run", 3)
    # What docs/use.md shows, with torch and safetensors alone.
    spec = json.loads(path.with_suffix(".json").read_text())
    mine = nn.Sequential(*[getattr(nn, name)(**options) for name, options in spec["layers"]])
    mine.load_state_dict(load_file(path))
    x = torch.rand(5, 8, 8)
    assert torch.equal(mine.eval()(x), result.client_model(3)(x))
    assert (spec["shift"], spec["scale"]) == ([0.0], [16.0])
    assert spec["score"]["test"] == result.scores[-1][3]


@pytest.mark.slow
def test_a_model_that_is_no_plain_sequence(tmp_path):
    settings = {**QUICK, "clients": 5, "epochs": None, "steps": 1, "rounds": 1, "method": "separate"}
    result = fedamp.run(model="resnet18", out=tmp_path / "run", **settings)
    path = export_client(tmp_path / "run", 0, tmp_path / "mine.safetensors")
    spec = json.loads(path.with_suffix(".json").read_text())
    assert spec["layers"] is None
    assert spec["model"] == {"name": "resnet18"}
    state = load_file(path)
    assert all(torch.equal(value, state[name]) for name, value in result.client_model(0).state_dict().items())


def test_layers_make_the_same_module():
    module = nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.GELU(),
        nn.GroupNorm(2, 4), nn.Flatten(), nn.LayerNorm(64), nn.Dropout(0.3), nn.Linear(64, 2, bias=False),
    )  # fmt: skip
    described = json.loads(json.dumps(describe_layers(module)))
    again = build_layers(described)
    assert str(again).replace("[1, 8]", "(1, 8)") == str(module)
    again.load_state_dict(FlatModel(module).state_dict(FlatModel(module).row()))


PAIRS = st.tuples(st.integers(1, 2), st.integers(1, 2))
CONVOLUTIONS = st.fixed_dictionaries(
    {"kernel_size": st.integers(1, 3), "out_channels": st.sampled_from([2, 4])},
    optional={
        "stride": PAIRS,
        "padding": st.one_of(st.just("valid"), PAIRS),
        "dilation": PAIRS,
        "groups": st.sampled_from([1, 2]),
        "bias": st.booleans(),
        "padding_mode": st.sampled_from(["zeros", "reflect", "replicate", "circular"]),
    },
)
NORMS = st.fixed_dictionaries(
    {},
    optional={
        "eps": st.floats(1e-6, 1),
        "momentum": st.one_of(st.none(), st.floats(0.01, 1)),
        "affine": st.booleans(),
        "track_running_stats": st.booleans(),
    },
)
POOLS = st.fixed_dictionaries(
    {"kernel_size": st.integers(2, 3)},
    optional={"stride": PAIRS, "padding": st.integers(0, 1), "dilation": PAIRS, "ceil_mode": st.booleans()},
)


@given(CONVOLUTIONS, NORMS, POOLS, st.sampled_from([nn.GELU("tanh"), nn.LeakyReLU(0.3), nn.ReLU(inplace=True)]))
@settings(max_examples=60, deadline=None)
def test_any_options_make_the_same_predictions(convolution, norm, pool, activation):
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(2, **convolution),
        nn.BatchNorm2d(convolution["out_channels"], **norm),
        activation,
        nn.MaxPool2d(**pool),
    )
    x = torch.randn(30, 2, 16, 16)
    module = nn.Sequential(*body, nn.Flatten(), nn.Linear(body(x).flatten(1).shape[1], 3))  # its statistics have moved
    model = FlatModel(module)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        write_model(path, model, model.row(), how_to_build(RunConfig(), module, (2, 16, 16), 3))
        spec = json.loads(path.with_suffix(".json").read_text())
        mine = nn.Sequential(*[getattr(nn, name)(**options) for name, options in spec["layers"]])
        mine.load_state_dict(load_file(path))
    assert torch.equal(mine.eval()(x).argmax(1), module.eval()(x).argmax(1))


def test_what_can_not_be_exported(tmp_path):
    fedamp.run(out=tmp_path / "run", **QUICK)
    with pytest.raises(ValueError, match="expected a number from 0 to 9"):
        export_client(tmp_path / "run", 10)
    with pytest.raises(ValueError, match="holds no run"):
        export_client(tmp_path, 0)
    own = sorted((tmp_path / "run").glob("*.safetensors"))
    assert "state.safetensors" in [path.name for path in own]
    for path in own:
        with pytest.raises(ValueError, match="is a file of the run itself"):
            export_client(tmp_path / "run", 0, out=path)
    (tmp_path / "run" / "models.safetensors").write_bytes(b"rubbish")
    with pytest.raises(ValueError, match="damaged"):
        export_client(tmp_path / "run", 0)
    clients = [(torch.randn(9, 2), torch.arange(9) % 2)] * 2
    fedamp.run(clients=clients, model=nn.Linear(2, 2), out=tmp_path / "given", rounds=1)
    with pytest.raises(ValueError, match="given from Python"):
        export_client(tmp_path / "given", 0)
