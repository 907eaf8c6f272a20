"""What a pass leaves behind in a module: undone after each, so that a pass depends only on its row and its input."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

_OWN = vars(nn.Module()).keys()  # what every module has; all other attributes are its author's


class Untouched:
    """A module that keeps nothing of what a pass writes to attributes and to buffers that are not persistent."""

    def __init__(self, module: nn.Module) -> None:
        parts = [] if all(_is_torchs(part) for part in module.modules()) else list(module.modules())
        named = [vars(part) for part in parts]
        self._places: list[dict[str, Any]] = [*named, *(part._buffers for part in parts)]
        self._places += [place for part in parts for place in (part._parameters, part._modules)]
        # A pass may write into these in place, so it gets copies.
        attributes = [(place, name) for place in named for name, value in place.items() if isinstance(value, Tensor)]
        buffers = [(part._buffers, name) for part in parts for name in sorted(part._non_persistent_buffers_set)]
        self._constants = [(place, name) for place, name in [*attributes, *buffers] if place[name] is not None]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Let a pass write what it likes inside; after it everything is as it was."""
        before = [dict(place) for place in self._places]
        copies: dict[int, Tensor] = {}  # one copy of a tensor that is in two places
        for place, name in self._constants:
            value = place[name]
            if id(value) not in copies:
                copies[id(value)] = value.detach().clone()
            place[name] = copies[id(value)]
        try:
            yield
        finally:
            for place, values in zip(self._places, before, strict=True):
                for name in place.keys() - values.keys():
                    del place[name]
                place.update(values)


def _is_torchs(part: nn.Module) -> bool:
    """Whether a part is one of torch's own layers, as it is: they write to nothing but their persistent buffers."""
    hooked = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
    return type(part).__module__.startswith("torch.nn.modules.") and not hooked and "forward" not in vars(part)


def differences(before: nn.Module, after: nn.Module) -> list[str]:
    """Return what differs between a module and a copy of it that has been used, as words such as "buffer 'seen'"."""
    old, new = _contents(before), _contents(after)
    return [what for what, value in new.items() if what not in old or not _same(old[what], value)]


def _contents(module: nn.Module) -> dict[str, Any]:
    contents: dict[str, Any] = {}
    for path, part in module.named_modules():
        at = f"{path}." if path else ""
        kinds = {"buffer": part._buffers, "parameter": part._parameters, "part": dict.fromkeys(part._modules)}
        kinds["attribute"] = {name: value for name, value in vars(part).items() if name not in _OWN}
        contents |= {f"{kind} {at + name!r}": value for kind, held in kinds.items() for name, value in held.items()}
    return contents


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal, as far as that can be seen; what is neither number nor text counts as equal."""
    (left, one), (right, other) = pytree.tree_flatten(a), pytree.tree_flatten(b)
    return one == other and all(_equal(*pair) for pair in zip(left, right, strict=True))


def _equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return (a.shape, a.dtype) == (b.shape, b.dtype) and torch.equal(a, b)
    return bool(a == b) if isinstance(a, bool | int | float | complex | str | bytes) else True
