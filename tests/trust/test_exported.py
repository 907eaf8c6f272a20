"""What an exported file says of a model is that model, or it says nothing."""

import json
import sys
import types

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils import parametrizations

import fedamp
from fedamp.config import Named, RunConfig
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import make_schema
from fedamp.federation.plan import Plan, SiloConfig
from fedamp.federation.silo.round import open_silo
from fedamp.models.flat_model import FlatModel
from fedamp.rows import Rows
from fedamp.runs.in_use.export import export_client, how_to_build, write_model

PICTURE, VECTOR = (2, 8, 8), (6,)


def rebuilt(path) -> nn.Module:
    """Do what docs/use.md shows, with the two files alone."""
    spec = json.loads(path.with_suffix(".json").read_text())
    model = nn.Sequential(*[getattr(nn, name)(**options) for name, options in spec["layers"]])
    model.load_state_dict(load_file(path))
    return model.eval()


def exported(module, shape, folder):
    """Write a module, whose values have moved as in training, and return the file and the module."""
    torch.manual_seed(0)
    model = FlatModel(module)
    row = model.row()
    row = Rows(row.params + 0.3 * torch.randn_like(row.params), row.buffers + torch.rand_like(row.buffers))
    config = RunConfig(model=Named("mine:net"))
    path = folder / "model.safetensors"
    write_model(path, model, row, how_to_build(config, model.module, shape, 3))
    own = model.fresh()
    own.load_state_dict(model.state_dict(row))
    return path, own.eval()


def words(module: nn.Module) -> str:
    return str(module).replace("[", "(").replace("]", ")")  # JSON has no tuples


def layers_of(path):
    return json.loads(path.with_suffix(".json").read_text())["layers"]


OPTIONS = {
    "circular padding": (nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), PICTURE),
    "reflected padding": (nn.Conv2d(2, 4, 3, padding=(2, 1), padding_mode="reflect", bias=False), PICTURE),
    "same padding": (nn.Conv2d(2, 4, 3, padding="same", dilation=2), PICTURE),
    "dilation and groups": (nn.Conv2d(2, 4, (3, 2), stride=(1, 2), dilation=(1, 2), groups=2), PICTURE),
    "transposed": (nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1, dilation=2), PICTURE),
    "batch norm": (nn.BatchNorm2d(2, eps=0.3, momentum=0.7), PICTURE),
    "batch norm, cumulative": (nn.BatchNorm2d(2, momentum=None), PICTURE),
    "batch norm without weights": (nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2, affine=False)), PICTURE),
    "batch norm without statistics": (nn.BatchNorm2d(2, track_running_stats=False), PICTURE),
    "max pool": (nn.MaxPool2d(3, stride=1, padding=1, dilation=2, ceil_mode=True), PICTURE),
    "max pool by axes": (nn.MaxPool2d((2, 3), stride=(1, 2)), PICTURE),
    "average pool": (nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False, divisor_override=5), PICTURE),
    "adaptive pool": (nn.AdaptiveAvgPool2d((2, None)), PICTURE),
    "flatten": (nn.Sequential(nn.Flatten(2), nn.Linear(64, 3)), PICTURE),
    "flatten some": (nn.Sequential(nn.Flatten(1, 2), nn.Linear(8, 3)), PICTURE),
    "gelu": (nn.GELU(approximate="tanh"), PICTURE),
    "layer norm": (nn.LayerNorm((8, 8), eps=0.2, bias=False), PICTURE),
    "layer norm without weights": (nn.LayerNorm(8, elementwise_affine=False), PICTURE),
    "group norm": (nn.GroupNorm(1, 2, eps=0.4, affine=False), PICTURE),
    "instance norm": (nn.InstanceNorm2d(2, affine=True, track_running_stats=True), PICTURE),
    "rms norm": (nn.RMSNorm((8, 8), eps=0.1), PICTURE),
    "leaky": (nn.LeakyReLU(0.4, inplace=True), PICTURE),
    "elu": (nn.ELU(alpha=2.5), PICTURE),
    "softplus": (nn.Softplus(beta=0.3, threshold=1.0), PICTURE),
    "prelu": (nn.PReLU(2, init=0.6), PICTURE),
    "relu in place": (nn.ReLU(inplace=True), PICTURE),
    "dropout": (nn.Dropout2d(0.2, inplace=True), PICTURE),
    "softmax": (nn.Softmax(dim=1), PICTURE),
    "padding": (nn.ConstantPad2d((1, 0, 2, 0), 0.7), PICTURE),
    "unflatten": (nn.Unflatten(1, (2, 1)), PICTURE),
    "identity": (nn.Identity(), PICTURE),
    "vectors": (nn.Sequential(nn.Linear(6, 4, bias=False), nn.BatchNorm1d(4, eps=0.5), nn.Tanh()), VECTOR),
}  # fmt: skip


def net(layers: nn.Module, shape) -> nn.Module:
    """Return a plain sequence that ends in three outputs."""
    body = list(layers) if isinstance(layers, nn.Sequential) else [layers]
    with torch.no_grad():
        size = nn.Sequential(*body).eval()(torch.zeros(2, *shape)).flatten(1).shape[1]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(size, 3)).train()


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_option_of_a_layer_is_written_down(kind, tmp_path):
    layers, shape = OPTIONS[kind]
    path, own = exported(net(layers, shape), shape, tmp_path)
    mine = rebuilt(path)
    assert words(mine) == words(own)  # what only training needs, too
    for x in (torch.rand(20, *shape), 3 * torch.randn(20, *shape)):
        torch.testing.assert_close(mine(x.clone()), own(x.clone()), rtol=1e-6, atol=1e-6)


def test_defaults_are_left_out(tmp_path):
    path, _ = exported(
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)), PICTURE, tmp_path
    )
    assert layers_of(path) == [
        ["Conv2d", {"in_channels": 2, "out_channels": 4, "kernel_size": [3, 3], "padding": [1, 1]}],
        ["ReLU", {}],
        ["Flatten", {}],
        ["Linear", {"in_features": 256, "out_features": 3}],
    ]


# What names and options do not tell ---------------------------------------------------------------------------------


def linear() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def hooked(on: int | None) -> nn.Module:
    module = linear()
    (module if on is None else module[on]).register_forward_hook(lambda m, args, out: out.clamp(max=50.0))
    return module


def pre_hooked() -> nn.Module:
    module = linear()
    module[0].register_forward_pre_hook(lambda m, args: (args[0].clamp(max=50.0),))
    return module


def patched() -> nn.Module:
    module = linear()
    module[1].forward = lambda x: x.tanh() + (x > 1000)
    return module


def patched_inside() -> nn.Module:
    module = net(nn.Conv2d(2, 4, 3), PICTURE)
    plain = module[0]._conv_forward
    module[0]._conv_forward = lambda x, weight, bias: plain(x, weight, bias) + (x.amax() > 1000)
    return module


def forgetful() -> nn.Module:
    module = net(nn.BatchNorm2d(2), PICTURE)
    module[0].track_running_stats = False
    return module


class Twice(nn.Tanh):
    def forward(self, x):
        return super().forward(super().forward(x))


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


class Tanh(nn.Module):
    """The name of one of torch's layers, and not it."""

    def forward(self, x):
        return x.tanh() ** 2


def in_double() -> nn.Module:
    torch.manual_seed(0)
    return linear().double()


MORE = {
    "hook on a layer": (lambda: hooked(0), VECTOR),
    "hook on the module": (lambda: hooked(None), VECTOR),
    "hook before a layer": (pre_hooked, VECTOR),
    "patched forward": (patched, VECTOR),
    "patched inside": (patched_inside, PICTURE),
    "parametrized": (lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 3))), VECTOR),
    "spectral norm": (lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 3))), VECTOR),
    "a layer's child class": (lambda: nn.Sequential(nn.Linear(6, 3), Twice()), VECTOR),
    "a namesake": (lambda: nn.Sequential(nn.Linear(6, 3), Tanh()), VECTOR),
    "a sequence's child class": (lambda: Doubled(nn.Linear(6, 3)), VECTOR),
    "a sequence in a sequence": (lambda: nn.Sequential(linear(), nn.ReLU()), VECTOR),
    "statistics that are not used": (forgetful, PICTURE),
    "an option that is no number": (lambda: nn.Sequential(nn.Linear(6, 3), nn.Hardtanh(-1.0, float("inf"))), VECTOR),
    "double precision, which torch's layers do not have by themselves": (in_double, VECTOR),
    "words": (lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(24, 3)), VECTOR),
}


@pytest.mark.parametrize("kind", MORE)
def test_where_layers_do_not_make_the_model_there_are_none(kind, tmp_path):
    make, shape = MORE[kind]
    path, own = exported(make(), shape, tmp_path)
    assert layers_of(path) is None
    state = load_file(path)  # the weights are there all the same
    assert all(torch.equal(value, state[name]) for name, value in own.state_dict().items())


def test_a_description_that_is_wrong_does_not_get_out(tmp_path):
    """Whatever describes the layers: what was not seen to be the model is not said of it."""
    module = net(nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), PICTURE)
    model = FlatModel(module)
    how = how_to_build(RunConfig(), module, PICTURE, 3)
    wrong = json.loads(json.dumps(how))
    del wrong["layers"][0][1]["padding_mode"]
    for given, expected in ((how, True), (wrong, False)):
        write_model(tmp_path / "model.safetensors", model, model.row(), given)
        assert (layers_of(tmp_path / "model.safetensors") is not None) == expected


def test_a_model_that_is_not_finite_proves_nothing(tmp_path):
    model = FlatModel(linear())
    rows = Rows(model.row().params * torch.nan, model.row().buffers)
    write_model(tmp_path / "model.safetensors", model, rows, how_to_build(RunConfig(), model.module, VECTOR, 3))
    assert layers_of(tmp_path / "model.safetensors") is None


def test_the_proof_moves_nobodys_stream(tmp_path):
    module = linear()
    torch.manual_seed(3)
    expected = torch.rand(2)
    model = FlatModel(module)
    torch.manual_seed(3)
    write_model(tmp_path / "a.safetensors", model, model.row(), how_to_build(RunConfig(), module, VECTOR, 3))
    assert torch.equal(torch.rand(2), expected)


def circular(input_shape, num_outputs):
    """A net for pictures of 8 x 8 whose edges meet."""
    conv = nn.Conv2d(1, 4, 5, padding=2, padding_mode="circular")
    return nn.Sequential(nn.Unflatten(1, (1, 8)), conv, nn.ReLU(), nn.Flatten(), nn.Linear(256, num_outputs))


def rings(input_shape, num_outputs):
    return nn.Sequential(
        nn.Unflatten(1, (1, 5)),
        nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"),
        nn.Flatten(),
        nn.Linear(10, num_outputs),
    )


@pytest.fixture
def nets(monkeypatch):
    module = types.ModuleType("nets")
    module.circular, module.rings = circular, rings
    monkeypatch.setitem(sys.modules, "nets", module)


@pytest.mark.usefixtures("nets")
def test_a_run_with_circular_padding_is_exported_as_it_was_scored(tmp_path):
    result = fedamp.run(model="nets:circular", clients=5, rounds=1, epochs=1, out=tmp_path / "run")
    mine, x = rebuilt(export_client(tmp_path / "run", 2)), torch.rand(200, 8, 8)
    assert torch.equal(mine(x).argmax(1), result.client_model(2)(x).argmax(1))


@pytest.mark.usefixtures("nets")
def test_a_silos_model_at_home_has_its_options(tmp_path):
    lines = [",".join(str((i * j) % 7) for j in range(1, 6)) + f",{'ab'[i % 2]}" for i in range(30)]
    (tmp_path / "mine.csv").write_text("\n".join(["a,b,c,d,e,label", *lines]) + "\n")
    config = RunConfig(data="x", setting=Named("natural"), clients=1, label="label", model=Named("nets:rings"))
    plan = Plan("test", config, make_schema([read_silo(tmp_path / "mine.csv", "label")]))
    silo = open_silo(SiloConfig(plan, "mine", 0, "nowhere:1"), tmp_path / "mine.csv", tmp_path)
    model = silo.setup.trainer.model
    silo._keep({"own": silo.setup.w}, {}, {"own": 1})
    own = model.fresh().eval()
    x = torch.randn(20, 5)
    torch.testing.assert_close(rebuilt(tmp_path / "models" / "own.safetensors")(x), own(x))
