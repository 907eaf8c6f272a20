"""A second device for machines that have none: its tensors compute on the CPU, and refuse to meet those that are there.

So code that moves rows between two devices is tested without a GPU: what was not moved is an error, as on a GPU. The
device goes by the name of torch's `meta`, which needs no driver; its tensors have values here.
"""

from __future__ import annotations

import contextlib

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

FAR = torch.device("meta")
ATEN = torch.ops.aten
BY_INDEX = {"aten::index", "aten::index_put", "aten::index_put_"}
"""Operations that take an index from the CPU on any device, as on a GPU."""


class Far(torch.Tensor):
    """A tensor that says that it is on the far device."""

    @staticmethod
    def __new__(cls, inner):
        """Return a tensor of the same form, without memory of its own."""
        form = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, device=FAR, **form)

    def __init__(self, inner):
        self.inner = inner

    def tolist(self):
        """Return the values, as a GPU's tensor does."""
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {})


def compute(function, args, kwargs):
    """Compute on the CPU; the result is far if the operands are, or if it is asked for there."""
    operands = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    far = any(isinstance(each, Far) for each in operands)
    near = any(not isinstance(each, Far) and each.ndim > 0 for each in operands)
    moves = function in (ATEN._to_copy.default, ATEN.copy_.default)
    if far and near and not moves and not _picks(function, args):
        raise RuntimeError(f"{function}: expected all tensors on the same device, but found two")
    if kwargs.get("device") is not None:
        far, kwargs = torch.device(kwargs["device"]) == FAR, {**kwargs, "device": torch.device("cpu")}
    found = function(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if function._schema.is_mutable and isinstance(found, torch.Tensor):
        return kwargs.get("out", args[0])
    return tree_map(lambda each: Far(each) if far and isinstance(each, torch.Tensor) else each, found)


def _picks(function, args):
    """Whether it is rows of a far tensor by an index on the CPU, and what is put there is far too."""
    return function._schema.name in BY_INDEX and all(isinstance(each, Far) for each in (args[0], *args[2:3]))


def _inner(value):
    return value.inner if isinstance(value, Far) else value


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {})


class _MadeOfNumbers(TorchFunctionMode):
    """`torch.tensor` and `as_tensor` do not come by as operations."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if function not in (torch.tensor, torch.as_tensor) or device is None or torch.device(device) != FAR:
            return function(*args, **kwargs)
        return function(*args, **{**kwargs, "device": "cpu"}).to(FAR)


@contextlib.contextmanager
def far_device():
    """Let there be a far device inside."""
    with _MadeOfNumbers(), _Operations():
        yield FAR
