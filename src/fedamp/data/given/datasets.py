"""Data sets handed over from Python: torch's Dataset and DataLoader, Hugging Face's with a column of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from fedamp.data.silos.one_line import brief, listed
from fedamp.errors import UserError


def is_dataset(given: Any) -> bool:
    """Whether this is a data set or a loader of torch; Hugging Face's is a table, unless a column has arrays."""
    return isinstance(given, Dataset | DataLoader)


def samples_of(whose: str, given: Any) -> tuple[Any, Any]:
    """Return (x, y) of a data set in its own order.

    Of a loader it is the data set behind it: its shuffling, batches and collate function are not used, as a run draws
    its own minibatches; so a loader that shuffles gives the same run. One that draws only some of the samples is
    refused: what it leaves out, it may leave out for testing.
    """
    dataset = given.dataset if isinstance(given, DataLoader) else given
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise UserError(
            f"{whose} is a {type(dataset).__name__} without a length; expected a Dataset with len(), or (x, y)"
        )
    if isinstance(given, DataLoader) and not _draws_all(given):
        raise UserError(
            f"{whose} is a DataLoader with a sampler of its own, which is not used; expected one that draws each "
            "sample once: choose samples with torch.utils.data.Subset"
        )
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:  # a subclass may change what a sample is
        return dataset.tensors
    xs, ys = [], []
    for place in range(len(dataset)):
        sample = dataset[place]
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise UserError(
                f"sample {place} of {whose} is {brief(sample)} of type {type(sample).__name__}; expected a pair (x, y)"
            )
        xs.append(_array(sample[0]))
        ys.append(sample[1].item() if hasattr(sample[1], "item") and np.ndim(sample[1]) == 0 else sample[1])
    if shapes := {x.shape for x in xs} - {xs[0].shape if xs else ()}:
        raise UserError(f"the samples of {whose} have shapes {xs[0].shape} and {shapes.pop()}; expected one shape")
    return (np.stack(xs) if xs else np.empty(0)), ys


def _draws_all(loader: Any) -> bool:
    """Whether a loader draws every sample of its data set once, in order or shuffled."""
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return False
    sampler: Any = loader.sampler if batches is None else batches.sampler
    plain = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    return plain and len(sampler) == len(loader.dataset)


def array_columns(table: Any) -> list[str]:
    """Return which columns of a Hugging Face data set hold an array or a picture in each row; none of other tables."""
    features = getattr(table, "features", None)
    if type(table).__module__.partition(".")[0] != "datasets" or not features:
        return []
    return [name for name, kind in features.items() if getattr(kind, "dtype", None) in (None, "list") or _deep(kind)]


def columns_of(whose: str, table: Any, label: str) -> tuple[Any, Any]:
    """Return (x, y) of a Hugging Face data set whose one column of arrays or pictures is the input."""
    arrays = array_columns(table)
    if label not in table.features:
        raise UserError(f"{whose} has no label column {label!r}; the columns are {listed(table.column_names)}")
    others = [name for name in table.column_names if name not in (label, *arrays)]
    if len(arrays) != 1 or others:
        raise UserError(
            f"{whose} has columns of arrays {listed(arrays)} and others {listed(others)} besides {label!r}; expected "
            "one column of arrays, or numbers and words only: leave some out with remove_columns"
        )
    plain = table.with_format(None)
    x = np.stack([_array(each) for each in plain[arrays[0]]])
    return x, list(plain[label])


def _deep(kind: Any) -> bool:
    return type(kind).__name__ in ("Image", "Sequence", "List", "LargeList", "Array2D", "Array3D", "Array4D", "Array5D")


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
