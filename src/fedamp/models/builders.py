"""From a model's name to a module: one of ours, or a user's own that is named `module:function`."""

import difflib
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedamp import checks, seeds
from fedamp.errors import UserError
from fedamp.models import dropout
from fedamp.models.zoo import MODELS, Builder, size_of

# What a run knows by itself; all else that a builder names is a hyperparameter.
_FROM_DATA = ("input_shape", "num_outputs")


def load_builder(spec: str) -> Builder:
    """Return a builder by its name, or a user's own by `module:function`.

    Modules are looked for in the current directory too, as with `python -m`.

    >>> from fedamp.models.zoo import mlp
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
    return builder  # type: ignore[no-any-return]  # what it returns is checked in build()


def _import(spec: str, name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # for good: the builder may import more when it is called
    try:
        return importlib.import_module(name)
    except ImportError as error:
        # A module that is missing and one whose own imports fail need different advice.
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise UserError(
                f"model {spec!r}: module {error.name!r} not found; it is looked for in {here} "
                "and among the installed packages"
            ) from error
        raise UserError(f"model {spec!r}: importing module {name!r} failed: {error}") from error


def parameter_names(builder: Builder) -> list[str] | None:
    """Return the hyperparameters that a builder names; None if it takes any (**kwargs).

    >>> from fedamp.models.zoo import mlp
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
    """Return the first model of a run, or of one client: it depends on the seed (and client) and nothing else.

    Torch's global generator is neither used nor moved. The builder gets those of `input_shape` and `num_outputs`
    that its signature names (with **kwargs: both), and `parameters`.

    >>> from fedamp.models.zoo import mlp
    >>> build(mlp, (8, 8), 10, seed=0, hidden=5)[1]
    Linear(in_features=64, out_features=5, bias=True)
    """
    checks.count("num_outputs", num_outputs)
    checks.seed("seed", seed)
    if client is not None:
        checks.count("client", client, least=0)
    shape = tuple(input_shape)
    size_of(shape)
    name = _name(builder)
    given = _arguments(builder, name, dict(zip(_FROM_DATA, (shape, num_outputs), strict=True)), parameters)
    # Trailing zeros do not change a stream, so without the 1 client 0 would start at the common model.
    first = seeds.number(seed, "init", 0 if client is None else client + 1)
    with dropout.own_stream(first, torch.device("cpu")):
        module = builder(**given)
    if not isinstance(module, nn.Module):
        raise UserError(f"model {name} returned {_kind(module)}; expected an nn.Module")
    return module


def _arguments(
    builder: Builder, name: str, from_data: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a builder is called with; raise if it takes other parameters, or needs more."""
    known = parameter_names(builder)
    if known is not None:
        _check_names(name, parameters, known)
    named, takes_any, required = _read_signature(builder)
    given = {key: value for key, value in from_data.items() if takes_any or key in named} | dict(parameters)
    if missing := [key for key in required if key not in given]:
        raise UserError(
            f"model {name} needs a value for {', '.join(missing)}; set it as a parameter of the model, or "
            "give it a default (input_shape and num_outputs are passed to a function that names them)"
        )
    return given


def _read_signature(builder: Builder) -> tuple[list[str], bool, list[str]]:
    """Return what a builder takes by name, whether it takes any name, and what it requires."""
    parameters = inspect.signature(builder).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return named, takes_any, [p.name for p in parameters if p.default is p.empty and p.kind not in variadic]


def _check_names(name: str, given: Collection[str], known: Collection[str]) -> None:
    for parameter in given:
        if not known:
            raise UserError(f"model {name} takes no parameters, but got {parameter!r}; leave it out")
        checks.one_of(f"parameter of {name}", parameter, known)


def _name(builder: Builder) -> str:
    """Return what a user would write to get this builder."""
    for name, own in MODELS.items():
        if own is builder:
            return name
    return f"{getattr(builder, '__module__', '?')}:{getattr(builder, '__qualname__', repr(builder))}"


def _kind(value: object) -> str:
    """Return what a value is, in words."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def source_digest(spec: str) -> str | None:
    """Return a digest of the file that a `module:function` comes from, or None if it has none.

    Another file under the same name is another model: runs of the two must not be mixed up.
    """
    try:
        load_builder(spec)
    except UserError:  # reported in full when the model is built
        return None
    path = getattr(sys.modules.get(spec.partition(":")[0]), "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else None
