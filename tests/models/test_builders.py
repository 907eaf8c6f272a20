"""A model is built from its name and a seed, and from nothing else."""

import sys

import pytest
import torch
from torch import nn

from fedamp.models import MODELS, build, load_builder, parameter_names
from fedamp.models.zoo import cnn, mlp


def weights(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """Return a function that writes a module of a user's own and returns the module's name."""
    written = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(f"from torch import nn\n{text}\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
        written.append(name)
        return name

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for name in written:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", MODELS)
def test_first_model_depends_on_seed_and_client_alone(name):
    def first(seed, client=None):
        torch.rand(1)  # whatever was drawn before
        return weights(build(MODELS[name], (8, 8), 3, seed, client))

    common = first(0)
    assert torch.equal(common, first(0))
    assert torch.equal(first(0, 2), first(0, 2))
    others = [common, first(1), first(0, 0), first(0, 1), first(1, 0)]
    for i, a in enumerate(others):
        for b in others[i + 1 :]:
            assert not torch.equal(a, b)


def test_global_generator_neither_matters_nor_moves():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    a = build(mlp, (4,), 2, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert torch.equal(weights(a), weights(build(mlp, (4,), 2, seed=0)))


def test_global_generator_does_not_move_when_a_builder_fails():
    def fails():
        torch.rand(1)
        raise RuntimeError("no")

    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="no"):
        build(fails, (4,), 2, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_numbers_are_checked():
    with pytest.raises(ValueError, match="hidden is 0; expected a whole number of 1 or more"):
        build(mlp, (8, 8), 10, seed=0, hidden=0)
    with pytest.raises(ValueError, match="num_outputs is 0"):
        build(mlp, (8, 8), 0, seed=0)
    with pytest.raises(ValueError, match="seed is -1"):
        build(mlp, (8, 8), 2, seed=-1)
    with pytest.raises(ValueError, match="client is -1"):
        build(mlp, (8, 8), 2, seed=0, client=-1)


def test_wrong_parameters_list_the_right_ones():
    with pytest.raises(ValueError, match=r"parameter 'hiden' of mlp \(did you mean 'hidden'\?\); choose from hidden$"):
        build(mlp, (8, 8), 10, seed=0, hiden=3)
    with pytest.raises(ValueError, match="model cnn takes no parameters, but got 'hidden'"):
        build(cnn, (8, 8), 10, seed=0, hidden=3)


def test_every_registered_builder_is_found_by_name():
    assert set(MODELS) == {"mlp", "logistic", "cnn-small", "cnn", "resnet18"}
    for name, builder in MODELS.items():
        assert load_builder(name) is builder


@pytest.mark.parametrize(
    ("text", "shape_of_weight"),
    [
        ("def f(input_shape, num_outputs):\n    return nn.Linear(input_shape[0], num_outputs)", (3, 4)),
        ("def f(num_outputs):\n    return nn.Linear(7, num_outputs)", (3, 7)),
        ("def f(*, input_shape):\n    return nn.Linear(*input_shape, 2)", (2, 4)),
        ("def f():\n    return nn.Linear(5, 6)", (6, 5)),
        ("def f(*args):\n    assert not args\n    return nn.Linear(5, 6)", (6, 5)),
        (
            "def f(**k):\n    assert len(k) == 2\n    return nn.Linear(k['input_shape'][0], k['num_outputs'])",
            (3, 4),
        ),
        ("def f(num_outputs, **k):\n    return nn.Linear(k['input_shape'][0], num_outputs)", (3, 4)),
        ("f = lambda num_outputs, width=9: nn.Linear(width, num_outputs)", (3, 9)),
        (
            "class f(nn.Module):\n    def __init__(self, num_outputs):\n        super().__init__()\n"
            "        self.weight = nn.Linear(2, num_outputs).weight",
            (3, 2),
        ),
    ],
)
def test_a_users_function_gets_what_it_names(nets, text, shape_of_weight):
    builder = load_builder(f"{nets('own_form', text)}:f")
    module = build(builder, (4,), 3, seed=0)
    assert module.weight.shape == shape_of_weight
    assert torch.equal(module.weight, build(builder, (4,), 3, seed=0).weight)
    assert not torch.equal(module.weight, build(builder, (4,), 3, seed=1).weight)


def test_a_users_parameters(nets):
    name = nets("own_parameters", "def f(num_outputs, width=2, *, bias=True):\n    return nn.Linear(width, 1, bias)")
    builder = load_builder(f"{name}:f")
    module = build(builder, (4,), 3, seed=0, width=5, bias=False)
    assert module.weight.shape == (1, 5)
    assert module.bias is None
    assert parameter_names(builder) == ["width", "bias"]
    with pytest.raises(
        ValueError,
        match=r"parameter 'widht' of own_parameters:f \(did you mean 'width'\?\); choose from bias, width$",
    ):
        build(builder, (4,), 3, seed=0, widht=5)


def test_a_users_function_with_kwargs_takes_any_parameter(nets):
    name = nets("own_any", "def f(**k): return nn.Linear(k['width'], 1)")
    builder = load_builder(f"{name}:f")
    assert parameter_names(builder) is None
    assert build(builder, (4,), 3, seed=0, width=6).weight.shape == (1, 6)


@pytest.mark.parametrize(
    "text", ["def f(num_outputs, width, depth): pass", "def f(width, /, depth, input_shape): pass"]
)
def test_a_users_function_that_wants_more_than_there_is(nets, text):
    builder = load_builder(f"{nets('own_missing', text)}:f")
    with pytest.raises(ValueError, match=r"own_missing:f needs a value for width, depth; .*default"):
        build(builder, (4,), 3, seed=0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("f = lambda: None", "None"),
        ("f = lambda: 3", "a value of type int"),
        ("f = lambda: nn.ReLU", "the class ReLU"),
    ],
)
def test_a_users_function_must_return_a_module(nets, text, what):
    with pytest.raises(ValueError, match=f"model own_none:<lambda> returned {what}.*expected an nn.Module"):
        build(load_builder(f"{nets('own_none', text)}:f"), (4,), 3, seed=0)


def test_current_directory_is_a_place_of_modules(tmp_path, monkeypatch):
    (tmp_path / "own_here.py").write_text("def f():\n    import own_later\n    return own_later.net()\n")
    (tmp_path / "own_later.py").write_text("from torch import nn\nnet = nn.ReLU\n")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with pytest.raises(ValueError, match="module 'own_here' not found"):
        load_builder("own_here:f")
    monkeypatch.chdir(tmp_path)
    assert isinstance(build(load_builder("own_here:f"), (4,), 3, seed=0), nn.ReLU)
    load_builder("own_here:f")
    assert sys.path.count(str(tmp_path)) == 1
    assert sys.path[0] == str(tmp_path)
    for name in ("own_here", "own_later"):
        del sys.modules[name]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "cnn-smal",
            r"unknown model 'cnn-smal' \(did you mean 'cnn-small'\?\); choose from cnn, cnn-small, logistic, ",
        ),
        ("what", r"choose from .*resnet18, or module:function for one of your own$"),
        ("", r"unknown model ''.*or module:function"),
        ("own_bad:", "model 'own_bad:' is not of the form module:function"),
        (":f", "not of the form module:function; .*expected nets:small"),
        (".own_bad:f", "not of the form"),
        ("nets/own_bad.py:f", "not of the form"),
        ("own_bad:f:g", "not of the form"),
        ("no_such_module:f", "model 'no_such_module:f': module 'no_such_module' not found; it is looked for in /"),
        ("no_such.thing:f", "module 'no_such' not found"),
        ("own_bad.thing:f", "module 'own_bad.thing' not found"),
        ("own_bad:net_", r"module 'own_bad' \(.*own_bad\.py\) has no 'net_' \(did you mean 'net'\?\)$"),
        ("own_bad:zzz", r"has no 'zzz'$"),
        ("own_bad:number", "model 'own_bad:number' is not callable, but of type int; expected a function"),
        ("own_bad:net", "model 'own_bad:net' is a finished Linear; expected a function that returns a new one"),
        ("own_importing:f", "importing module 'own_importing' failed: No module named 'no_such_other'$"),
        ("own_importing2:f", "importing module 'own_importing2' failed: cannot import name 'no_such_name'"),
    ],
)
def test_specs_that_name_no_builder(nets, spec, message):
    nets("own_bad", "number = 3\nnet = nn.Linear(1, 1)")
    nets("own_importing", "import no_such_other")
    nets("own_importing2", "from math import no_such_name")
    with pytest.raises(ValueError, match=message) as caught:
        load_builder(spec)
    assert "\n" not in str(caught.value)
