"""A client's model with all that it takes to ask it: how new rows become inputs, and what its outputs mean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedamp.data.silos.schema import Schema
from fedamp.data.silos.unlabelled import encode, encode_table, ids_of
from fedamp.data.silos.unlabelled_tables import (
    check_file,
    encode_file,
    read_array,
    read_cells,
    table_in_memory,
    table_of_array,
)
from fedamp.errors import UserError
from fedamp.models.dropout import own_stream
from fedamp.runs.in_use.prediction import Prediction, check_id
from fedamp.training.precision import use_precision

BATCH = 4096
"""Rows that a model sees at once."""
ARRAYS = (".npz", ".npy")
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model of one client, ready to be asked."""

    module: nn.Module  # in eval mode, on the CPU
    whose: str  # for errors: "client 'hospital-a'"
    task: str
    input_shape: tuple[int, ...]
    schema: Schema | None = None  # of silos: columns, words, labels, scaling
    label: str | None = None  # the column to predict, where an older schema does not name it
    shift: tuple[float, ...] = ()  # without a schema a model sees (x - shift) / scale; none: samples as they are
    scale: tuple[float, ...] = ()
    precision: str = "fp32"  # as in training
    encoding: str | None = None  # of the silos' files, and so of new ones unless another is named
    labels: tuple[str, ...] | None = None  # names of the classes, where words were given from Python

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the model."""
        return next(self.module.parameters()).dtype

    def predict(self, data: Any, id: str | None = None, encoding: str | None = None) -> Prediction:
        """Return what the model says of rows: a file's, a table's in memory, or an array's.

        `id` names a column that identifies rows, and is no input by itself; `encoding` is that of a text file.
        """
        if id is not None:
            check_id(id)
        encoding = encoding or self.encoding
        schema, ids, lines = self.schema, None, list[str]()
        if isinstance(data, str | os.PathLike):
            data = Path(data)
            check_file(data)
        if schema is None or schema.columns is None:
            x = self._inputs(self._array(data, id))
        else:
            ignored = [name for name in (id, self.label) if name is not None]
            if isinstance(data, Path) and data.suffix.lower() not in ARRAYS:
                x, lines = encode_file(schema, data, ignored, encoding)
                ids = None if id is None else (id, ids_of(read_cells(data, encoding, schema.columns), id))
            else:
                table = None if isinstance(data, Path) else table_in_memory(data)
                if table is None:
                    table = table_of_array(schema, self._array(data, id))
                ids = None if id is None else (id, ids_of(table, id))
                x, lines = encode_table(schema, table, ignored)
        return self.decoded(self.outputs(x), ids, tuple(lines))

    def _array(self, data: Any, id: str | None) -> NDArray[Any]:
        """Return samples as an array."""
        if isinstance(data, Path) and data.suffix.lower() not in ARRAYS:
            raise UserError(
                f"{data} is no .npz file, and the model learned from arrays of shape {self.input_shape}, not from a "
                "table; expected an npz file with an array x (samples, ...)"
            )
        if id is not None:
            raise UserError(f"id is {id!r}, but the rows come as an array, which has no names; leave it out")
        return read_array(data) if isinstance(data, Path) else _array(data)

    def _inputs(self, array: NDArray[Any]) -> Tensor:
        """Return samples as the model takes them."""
        if array.shape[1:] != self.input_shape or not array.ndim:
            one = ": one sample alone is x[None]" if array.shape == self.input_shape else ""
            raise UserError(
                f"data has shape {array.shape}; expected (samples, {', '.join(map(str, self.input_shape))}){one}"
            )
        if not len(array):
            raise UserError("data has no samples; expected at least one to predict for")
        if array.dtype.kind not in "biuf":
            raise UserError(f"data has type {array.dtype}; expected numbers")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.argmin(np.isfinite(array).reshape(len(array), -1).all(1)))
            raise UserError(f"data is not finite in sample {row}; expected finite numbers")
        if self.schema is not None:
            whole = array.astype(np.float64) if array.dtype.kind == "b" or array.dtype == np.float16 else array
            return encode(self.schema, whole, {}, "data")
        if array.dtype.kind in "iu" and array.dtype != np.uint8:
            array = array.astype(np.int64)
        x = torch.from_numpy(np.require(array.astype(array.dtype.newbyteorder("=")), requirements=["C", "W"]))
        if not self.scale:
            # Whole numbers may be indices into an Embedding. Where a model does not take them, they are amounts.
            indices = not x.is_floating_point() and x.dtype not in (torch.uint8, torch.bool) and self.takes(x[:1])
            return x if indices else x.to(self.dtype)
        return (x.to(self.dtype) - self.per_channel(self.shift)) / self.per_channel(self.scale)

    def per_channel(self, values: tuple[float, ...]) -> Tensor:
        """Return a shift or scale that broadcasts over samples: one number, or one for each channel."""
        numbers = torch.tensor(values, dtype=self.dtype)
        return numbers.reshape(-1, *[1] * (len(self.input_shape) - 1)) if len(values) > 1 else numbers[0]

    def takes(self, x: Tensor) -> bool:
        """Whether the model can be asked about inputs of this kind."""
        try:
            with torch.no_grad(), own_stream(0, CPU):
                self.module(x)
        except Exception:  # whatever the layers of a user's own model raise
            return False
        return True

    def outputs(self, x: Tensor) -> Tensor:
        """Return the model's outputs (N, k) for inputs that are encoded and scaled, in parts that fit the memory."""
        with self._as_scored():
            parts = [self.module(_moved(part, self.dtype)) for part in torch.split(x, BATCH)]
        found = torch.cat([part.to(self.dtype) for part in parts])
        if not found.isfinite().all():
            rows = int((~found.isfinite().flatten(1).all(1)).sum())
            raise UserError(
                f"the model of {self.whose} gives numbers that are not finite for {rows} of {len(x)} rows: it has "
                "diverged, or the rows are far from those that it learned from"
            )
        return found

    @contextmanager
    def _as_scored(self) -> Iterator[None]:
        """Compute as when the model was scored: in its format, and drawing from nobody's stream."""
        precision = "bf16" if self.precision == "bf16" else "fp32"  # tf32 is a GPU's
        with torch.no_grad(), own_stream(0, CPU), use_precision(precision, CPU):
            yield

    def decoded(
        self, outputs: Tensor, ids: tuple[str, list[str]] | None = None, lines: tuple[str, ...] = ()
    ) -> Prediction:
        """Return what outputs mean: the label with the highest output, or the value in its own unit."""
        numbers: NDArray[np.float64] = outputs.double().numpy()
        if self.task == "regression":
            scale, shift = (1.0, 0.0) if self.schema is None else (self.schema.target_scale, self.schema.target_shift)
            return Prediction(values=numbers[:, 0] * scale + shift, ids=ids, warnings=lines)
        classes = self.classes(numbers.shape[1])
        return Prediction(
            classes=classes,
            labels=np.array(classes)[outputs.argmax(-1).numpy()],  # of the outputs: rounded probabilities may tie
            probabilities=outputs.double().softmax(-1).numpy(),
            ids=ids,
            warnings=lines,
        )

    def classes(self, count: int) -> tuple[Any, ...]:
        """Return the labels in order; the classes' numbers where they have no names."""
        known = self.labels if self.schema is None else self.schema.labels
        return tuple(range(count)) if known is None else known


def _moved(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if x.is_floating_point() else x


def _array(data: Any) -> NDArray[Any]:
    """Return what holds numbers as an array."""
    if isinstance(data, Tensor):
        return data.detach().cpu().to_dense().numpy()
    try:
        array = np.asarray(data.to_numpy() if hasattr(data, "to_numpy") else data)
    except (TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:120]
        raise UserError(
            f"data is a {type(data).__name__} that is no array ({why}); expected an array, a table or a path"
        ) from None
    if not array.ndim:
        raise UserError(f"data is a {type(data).__name__}; expected an array, a table, or the path of a file")
    return array
