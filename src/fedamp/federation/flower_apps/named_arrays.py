"""A state dict's arrays as one row, and back: for Flower apps whose models travel under their parameters' names."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from fedamp.errors import UserError
from fedamp.federation.wire.encoding import check_names, decode_array
from fedamp.rows import Rows

# BatchNorm's statistics: mixed with the rest, but not part of the distance between two models.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class Layout:
    """Which arrays a model has, in order, and which of them are learned."""

    params: Mapping[str, Tensor]  # only shapes and types count
    buffers: Mapping[str, Tensor]

    @classmethod
    def of(cls, record: ArrayRecord, buffers: Collection[str] | None = None) -> Layout:
        """Return the layout of a model's arrays.

        `buffers` names those that are not learned; by default BatchNorm's statistics, and all whole numbers.
        """
        tensors = {name: torch.from_numpy(array.numpy().copy()) for name, array in record.items()}
        if buffers is None:
            buffers = [
                name for name, t in tensors.items() if not t.is_floating_point() or name.split(".")[-1] in STATISTICS
            ]
        if unknown := sorted(set(buffers) - set(tensors)):
            raise UserError(f"buffers name {unknown}; expected some of the arrays, {', '.join(tensors)}")
        params = {name: tensor for name, tensor in tensors.items() if name not in buffers}
        dtypes = {tensor.dtype for tensor in params.values()}
        if len(dtypes) != 1:
            raise UserError(
                f"the initial arrays hold {len(params)} parameters of {len(dtypes)} types "
                f"({', '.join(sorted(map(str, dtypes)))}); expected at least one, all of one floating type"
            )
        return cls(params, {name: tensors[name] for name in tensors if name in buffers})

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters, and so of the rows."""
        return next(iter(self.params.values())).dtype

    @property
    def variances(self) -> Tensor:
        """Which buffer values are variances, `(b,)` bool."""
        parts = [torch.full((like.numel(),), name.endswith("running_var")) for name, like in self.buffers.items()]
        return torch.cat([*parts, torch.empty(0, dtype=torch.bool)])

    def row(self, record: ArrayRecord) -> Rows:
        """Return a model's arrays as a row; one that is not like the layout is refused."""
        wanted = {**self.params, **self.buffers}
        check_names(record, wanted)
        read = {name: decode_array(name, record[name], like) for name, like in wanted.items()}
        return Rows(self._flat(read, self.params), self._flat(read, self.buffers))

    def _flat(self, read: Mapping[str, Tensor], names: Mapping[str, Any]) -> Tensor:
        parts = [read[name].to(self.dtype).reshape(-1) for name in names]
        return torch.cat([*parts, torch.empty(0, dtype=self.dtype)])[None]

    def record(self, row: Rows) -> ArrayRecord:
        """Return a row `(1, d)` as arrays under their names."""
        arrays = {}
        for names, flat in ((self.params, row.params[0]), (self.buffers, row.buffers[0])):
            parts = torch.split(flat, [math.prod(like.shape) for like in names.values()]) if names else ()
            for (name, like), part in zip(names.items(), parts, strict=True):
                value = part.round() if not like.is_floating_point() else part
                arrays[name] = Array(value.reshape(like.shape).to(like.dtype).contiguous().numpy())
        return ArrayRecord(arrays)
