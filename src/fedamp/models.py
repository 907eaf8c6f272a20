"""Networks, by name: a builder takes the shape of one sample and the number of outputs, and returns an nn.Module.

Adding one is a function and a line in MODELS; a user's own is named `module:function` and needs no line.
"""

import difflib
import hashlib
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedamp import checks, dropout, seeds
from fedamp.errors import UserError


def logistic(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return multinomial logistic regression: one linear layer, whose outputs are the logits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(_size(input_shape), num_outputs))


def mlp(input_shape: Sequence[int], num_outputs: int, hidden: int = 64) -> nn.Module:
    """Return a perceptron with one hidden layer of `hidden` rectified units."""
    checks.count("hidden", hidden)
    return nn.Sequential(nn.Flatten(), nn.Linear(_size(input_shape), hidden), nn.ReLU(), nn.Linear(hidden, num_outputs))


def cnn_small(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return a small convolutional net for small pictures: 3x3 convolutions of 16 and 32 channels, 64 units."""
    entry, (channels, height, width) = _picture("cnn-small", input_shape, smallest=4)
    return nn.Sequential(
        *entry,
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), 64),
        nn.ReLU(),
        nn.Linear(64, num_outputs),
    )


def cnn(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return the convolutional net of federated averaging: 5x5 convolutions of 32 and 64 channels, 512 units.

    It has 1,663,370 parameters for pictures of 28 x 28 and 10 outputs, as in the paper.

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.
    """
    entry, (channels, height, width) = _picture("cnn", input_shape, smallest=4)
    return nn.Sequential(
        *entry,
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, num_outputs),
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a way around them: relu(f(x) + x), x projected where the shape changes."""

    side_by_side = True  # for `stacked`: all that is done besides the layers is element by element

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 3, stride)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.norm2 = nn.BatchNorm2d(width)
        self.around: nn.Module = nn.Identity()
        if stride > 1 or channels != width:
            self.around = nn.Sequential(_conv(channels, width, 1, stride), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, `(N, width, height / stride, ...)`."""
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.around(x))


def resnet18(input_shape: Sequence[int], num_outputs: int) -> nn.Module:
    """Return ResNet-18 with the stem for small pictures: a 3x3 convolution of stride 1, and no max pool.

    It has 11,220,132 parameters for pictures of 3 x 32 x 32 and 100 outputs. At 8 x 8 the last blocks see one
    pixel, so that BatchNorm can't train there on a batch of one.

    Reference: He et al., Deep Residual Learning for Image Recognition, 2016.
    """
    entry, (channels, _, _) = _picture("resnet18", input_shape, smallest=8)
    layers = [*entry, _conv(channels, 64, 3), nn.BatchNorm2d(64), nn.ReLU()]
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(before, width, stride), BasicBlock(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_outputs))


def _conv(channels: int, width: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    # No bias: the BatchNorm that follows would subtract it again.
    conv = nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _size(input_shape: Sequence[int]) -> int:
    """Return how many values a sample has."""
    if not input_shape or any(not isinstance(length, int) or length < 1 for length in input_shape):
        raise UserError(
            f"input_shape is {input_shape!r}; expected the shape of one sample, such as (8, 8): "
            "one axis or more, each a whole number of 1 or more"
        )
    return math.prod(input_shape)


def _picture(name: str, input_shape: Sequence[int], smallest: int) -> tuple[list[nn.Module], tuple[int, int, int]]:
    """Return the layers that give a grey picture its channel axis, and the picture's (channels, height, width)."""
    _size(input_shape)
    shape = tuple(input_shape)
    if len(shape) not in (2, 3):
        raise UserError(
            f"{name} can't take samples of shape {shape}: expected pictures, (height, width) or "
            "(channels, height, width); choose mlp or logistic for other data"
        )
    height, width = shape[-2:]
    if min(height, width) < smallest:
        raise UserError(
            f"{name} can't take pictures of shape {shape}: the smallest allowed is {smallest} x {smallest}; "
            "choose mlp or logistic, or enlarge the pictures"
        )
    if len(shape) == 2:
        return [nn.Unflatten(1, (1, height))], (1, height, width)
    return [], (shape[0], height, width)


Builder = Callable[..., nn.Module]

MODELS: dict[str, Builder] = {
    "mlp": mlp,
    "logistic": logistic,
    "cnn-small": cnn_small,
    "cnn": cnn,
    "resnet18": resnet18,
}

# What a run knows by itself; all else that a builder names is a hyperparameter.
_FROM_DATA = ("input_shape", "num_outputs")


def load_builder(spec: str) -> Builder:
    """Return a builder by its name, or a user's own by `module:function`.

    The current directory counts as a place of modules, as with `python -m`.

    >>> load_builder("mlp") is mlp
    True
    """
    if ":" not in spec:
        try:
            checks.one_of("model", spec, MODELS)
        except UserError as error:
            raise UserError(f"{error}, or module:function for one of your own") from None
        return MODELS[spec]
    module_name, _, attribute = spec.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise UserError(
            f"model {spec!r} is not of the form module:function; "
            "for a function small() in the file nets.py, expected nets:small"
        )
    module = _import(spec, module_name)
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, dir(module), n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        where = getattr(module, "__file__", None) or "a folder without __init__.py"
        raise UserError(f"model {spec!r}: module {module_name!r} ({where}) has no {attribute!r}{hint}")
    builder = getattr(module, attribute)
    if isinstance(builder, nn.Module):
        raise UserError(
            f"model {spec!r} is a finished {type(builder).__name__}; expected a function that returns a new one, "
            "so that its first weights follow the seed"
        )
    if not callable(builder):
        raise UserError(
            f"model {spec!r} is not callable, but of type {type(builder).__name__}; "
            "expected a function that returns an nn.Module"
        )
    return builder  # type: ignore[no-any-return]  # what it returns is seen in build()


def _import(spec: str, name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # for good: the builder may import more when it is called
    try:
        return importlib.import_module(name)
    except ImportError as error:
        # A module that is missing, and one that is there but misses another, need different cures.
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise UserError(
                f"model {spec!r}: module {error.name!r} not found; it is looked for in {here} "
                "and among the installed packages"
            ) from error
        raise UserError(f"model {spec!r}: importing module {name!r} failed: {error}") from error


def parameter_names(builder: Builder) -> list[str] | None:
    """Return the hyperparameters that a builder names; None where it takes any (**kwargs).

    >>> parameter_names(mlp)
    ['hidden']
    """
    named, takes_any, _ = _read_signature(builder)
    return None if takes_any else [name for name in named if name not in _FROM_DATA]


def build(
    builder: Builder,
    input_shape: Sequence[int],
    num_outputs: int,
    seed: int,
    client: int | None = None,
    **parameters: Any,
) -> nn.Module:
    """Return the first model of a run, or of one client: it depends on the seed (and client), on nothing else.

    Torch's global generator neither matters nor moves. The builder gets those of `input_shape` and `num_outputs`
    that its signature names (with **kwargs: both), and `parameters`.

    >>> build(mlp, (8, 8), 10, seed=0, hidden=5)[1]
    Linear(in_features=64, out_features=5, bias=True)
    """
    checks.count("num_outputs", num_outputs)
    checks.count("seed", seed, least=0)
    if client is not None:
        checks.count("client", client, least=0)
    shape = tuple(input_shape)
    _size(shape)
    name = _name(builder)
    known = parameter_names(builder)
    if known is not None:
        _check_names(name, parameters, known)
    named, takes_any, required = _read_signature(builder)
    from_data = zip(_FROM_DATA, (shape, num_outputs), strict=True)
    given = {key: value for key, value in from_data if takes_any or key in named} | parameters
    if missing := [key for key in required if key not in given]:
        raise UserError(
            f"model {name} needs a value for {', '.join(missing)}; set it as a parameter of the model, or "
            "give it a default (input_shape and num_outputs are given to a function that names them)"
        )
    # Trailing zeros do not change a stream, so without the 1 client 0 would start at the common model.
    first = seeds.number(seed, "init", 0 if client is None else client + 1)
    with dropout.own_stream(first, torch.device("cpu")):
        module = builder(**given)
    if not isinstance(module, nn.Module):
        raise UserError(f"model {name} returned {_kind(module)}; expected an nn.Module")
    return module


def _read_signature(builder: Builder) -> tuple[list[str], bool, list[str]]:
    """Return what a builder takes by name, whether it takes any name, and what it can't do without."""
    parameters = inspect.signature(builder).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return named, takes_any, [p.name for p in parameters if p.default is p.empty and p.kind not in variadic]


def _check_names(name: str, given: Collection[str], known: Collection[str]) -> None:
    for parameter in given:
        if not known:
            raise UserError(f"model {name} has no parameters, so no {parameter!r}")
        checks.one_of(f"parameter of {name}", parameter, known)


def _name(builder: Builder) -> str:
    """Return what a user would write to get this builder."""
    for name, own in MODELS.items():
        if own is builder:
            return name
    return f"{getattr(builder, '__module__', '?')}:{getattr(builder, '__qualname__', repr(builder))}"


def _kind(value: object) -> str:
    """Return in words what a value is."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def code_digest(spec: str) -> str | None:
    """Return a digest of the file that a `module:function` comes from, or None where it has none.

    Another file under the same name is another model: its runs are not to be taken for one another.
    """
    try:
        load_builder(spec)
    except UserError:  # told in full when the model is built
        return None
    path = getattr(sys.modules.get(spec.partition(":")[0]), "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else None
