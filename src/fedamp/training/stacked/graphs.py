"""A GPU's work, recorded once and replayed: a step of many small kernels then costs one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedamp.ranks.launched import launched

Function = Callable[..., tuple[Tensor, ...]]
"""From tensors to tensors, and nothing else: what it does must depend on their values and shapes alone."""

PATIENCE = 3
"""Plain calls before a shape is recorded. They also let cuDNN look for its fastest convolutions."""

NEVER = -(1 << 60)
"""A count from which no call is ever recorded."""

KEPT = 16
"""How many shapes are recorded at most; each keeps its inputs on the device."""


def recordable(value: Tensor) -> bool:
    """Return whether work on this tensor can be recorded: its device has graphs."""
    return value.is_cuda


class Graphs:
    """Calls of a function, recorded by the shapes of its inputs. On a CPU they are plain calls.

    `call` numbers the calls of one step: each has a recording of its own, so that what one returns is valid until
    the same call of the next step. A recording reads its inputs where they were when it was made: they are copied to
    there before each replay, unless they are the first ones of `settled` rows.
    """

    def __init__(self) -> None:
        self._calls: dict[Any, int] = {}
        self._recorded: dict[Any, _Recorded] = {}
        self._settled: dict[Any, Tensor] = {}

    def settled(self, name: str, rows: Tensor, which: Tensor) -> Tensor:
        """Return some of the rows in memory that stays: steps change them where recordings read them.

        There is one such place for each name and width; what was there before is overwritten. On a CPU they are a copy.
        """
        if not recordable(rows):
            return rows[which]
        key = name, *rows.shape[1:], rows.dtype, rows.device
        if key in self._settled and len(self._settled[key]) < len(which):
            self.clear()  # of recordings too: they keep the smaller place, and read there
        if key not in self._settled:
            self._settled[key] = rows.new_empty((len(which), *rows.shape[1:]))
        # Fewer rows lie in the front of it: with absent clients each round may have another number of them.
        return torch.index_select(rows, 0, which, out=self._settled[key][: len(which)])

    def __call__(self, function: Function, call: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return function(*inputs)."""
        if not recordable(inputs[0]):
            return function(*inputs)
        where = [self._address(value) for value in inputs]
        key = (function, call, *((value.shape, value.dtype) for value in inputs), *where)
        if key in self._recorded:
            return self._recorded[key](*inputs)
        self._calls[key] = self._calls.get(key, 0) + 1
        if self._calls[key] > PATIENCE and len(self._recorded) < KEPT:
            pool = next(iter(self._recorded.values())).graph.pool() if self._recorded else None
            recorded = _record(function, inputs, [place is not None for place in where], pool)
            if recorded is not None:
                self._recorded[key] = recorded
                return recorded(*inputs)
            self._calls[key] = NEVER
        return function(*inputs)

    def _address(self, value: Tensor) -> int | None:
        """Return where a value is, if it begins in memory that stays.

        Rows further down are copied: clients whose minibatches are shorter come there now and then, in many places.
        """
        begins = any(value.data_ptr() == kept.data_ptr() for kept in self._settled.values())
        return value.data_ptr() if begins and value.is_contiguous() else None

    def clear(self) -> None:
        """Forget everything, and give its memory back."""
        self._calls.clear()
        self._recorded.clear()
        self._settled.clear()


def _record(function: Function, inputs: tuple[Tensor, ...], stay: list[bool], pool: Any) -> _Recorded | None:
    """Return a recording, or None if it can't be made: a pass that waits for the host, or too little memory."""
    stream = torch.cuda.current_stream()
    try:
        return _Recorded(function, inputs, stay, pool)
    except Exception:  # the plain call works, or raises its own error
        torch.cuda.set_stream(stream)  # a capture that fails does not always leave its stream
        torch.cuda.synchronize()
        return None


class _Recorded:
    """One call with one set of shapes."""

    def __init__(self, function: Function, inputs: tuple[Tensor, ...], stay: list[bool], pool: Any) -> None:
        values = [value.detach() for value in inputs]
        self.inputs = [value if stays else value.clone() for value, stays in zip(values, stay, strict=True)]
        self.stay = stay
        self.graph = torch.cuda.CUDAGraph()
        # All graphs share one pool: they are replayed one after the other.
        # Of several processes each has a thread that looks after NCCL, and may ask the GPU something meanwhile.
        mode = "global" if launched() is None else "thread_local"
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode=mode):
            self.outputs = function(*self.inputs)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for own, given, stays in zip(self.inputs, inputs, self.stay, strict=True):
            if not stays:
                own.copy_(given)
        self.graph.replay()
        return self.outputs
