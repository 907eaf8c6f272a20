"""Memory of large stacks of rows, used again round after round: new pages take longer than what is computed in them.

A stack's memory comes back once nothing refers to it any more. Only inside `used_again`, and only on the host.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import Tensor

LARGE = 1 << 25
"""Bytes from which on the C library takes new pages for each tensor; of smaller ones it keeps what is freed."""


class _Freed:
    """Memory of stacks that are gone, for stacks of the same size."""

    def __init__(self) -> None:
        self.held: list[Tensor] = []
        self.open = True

    def take(self, size: int) -> Tensor:
        """Return so many bytes."""
        for i, memory in enumerate(self.held):
            if len(memory) == size:
                return self.held.pop(i)
        self.held.clear()  # before more is taken, so that no more is held than was in use at once
        return torch.empty(size, dtype=torch.uint8)

    def back(self, memory: Tensor) -> None:
        """Keep what a stack was in, unless this is over."""
        if self.open:
            self.held.append(memory)


_FREED: ContextVar[_Freed | None] = ContextVar("memory of stacks that are gone", default=None)


@contextlib.contextmanager
def used_again() -> Iterator[None]:
    """Let large stacks that are made inside take the memory of those that are gone; afterwards it is given back."""
    freed = _Freed()
    token = _FREED.set(freed)
    try:
        yield
    finally:
        _FREED.reset(token)
        freed.open = False
        freed.held.clear()


def empty_stack(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return a stack of this shape, of the type and on the device of another, whose values are still to be written."""
    freed, size = _FREED.get(), math.prod(shape) * like.element_size()
    if freed is None or size < LARGE or like.device.type != "cpu":
        return like.new_empty(shape)
    memory = freed.take(size)
    view = memory.numpy().data
    # The tensor holds the view: when its storage goes, with the last tensor that shares it, so does the view.
    weakref.finalize(view, freed.back, memory).atexit = False
    return torch.frombuffer(view, dtype=like.dtype).view(shape)
