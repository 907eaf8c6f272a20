"""Rows as Flower's records and back, with nothing taken on trust.

A message `{"u": Rows, "strength": Rows}` of height one is an ArrayRecord with the vectors `u.params`, `u.buffers` and
so on, in numpy's own format. What comes in is compared with a template, a valid message: names, shapes and types are
known before a byte is read, and what is not finite is refused. Nothing is ever unpickled.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from fedamp.rows import Message, Rows


class RefusedError(ValueError):
    """What came in can't be used; the text says why, for whoever reads the log."""


def encode(message: Message) -> ArrayRecord:
    """Return a message of height one as a record of vectors."""
    arrays = {}
    for name, rows in message.items():
        for part, tensor in (("params", rows.params), ("buffers", rows.buffers)):
            arrays[f"{name}.{part}"] = Array(tensor[0].detach().cpu().contiguous().numpy())
    return ArrayRecord(arrays)


def decode(record: ArrayRecord, template: Message) -> Message:
    """Return the message in a record, or raise `RefusedError` if it is not like the template."""
    wanted: dict[str, Tensor] = {}
    for name, rows in template.items():
        wanted |= {f"{name}.params": rows.params[0], f"{name}.buffers": rows.buffers[0]}
    check_names(record, wanted)
    read = {name: decode_array(name, record[name], tensor) for name, tensor in wanted.items()}
    return {name: Rows(read[f"{name}.params"][None], read[f"{name}.buffers"][None]) for name in template}


def check_names(record: ArrayRecord, wanted: Mapping[str, Tensor]) -> None:
    """Raise unless a record has exactly the arrays that it should have."""
    names = set(record.keys())
    if names != set(wanted):
        missing, unknown = sorted(set(wanted) - names), sorted(names - set(wanted))
        parts = [f"no {_listed(missing)}"] if missing else []
        parts += [f"an unknown {_listed(unknown)}"] if unknown else []
        raise RefusedError(f"it has {' and '.join(parts)}; expected {_listed(sorted(wanted)) or 'no arrays'}")


def decode_array(name: str, array: Array, like: Tensor) -> Tensor:
    """Return an array as a new tensor, or raise `RefusedError` unless it has the shape and type of `like`.

    The header is read before the data: it may claim more than there is memory for, or Python objects.
    """
    shape, dtype = tuple(like.shape), like.cpu().numpy().dtype
    file = io.BytesIO(array.data)
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise RefusedError(f"{name} is in version {version} of numpy's format; expected (1, 0)")
        found, fortran, kind = np.lib.format.read_array_header_1_0(file)
    except RefusedError:
        raise
    except Exception as error:  # whatever bytes from elsewhere do to the reader
        raise RefusedError(f"{name} is not a numpy array ({one_line(error, 120)})") from None
    if kind != dtype:
        raise RefusedError(f"{name} has type {kind}; expected {dtype}")
    if tuple(found) != shape or (fortran and len(shape) > 1):
        raise RefusedError(f"{name} has shape {tuple(found)}; expected {shape}")
    data = array.data[file.tell() :]
    if len(data) != like.numel() * dtype.itemsize:
        raise RefusedError(f"{name} has {len(data)} bytes; expected {like.numel() * dtype.itemsize}")
    values = torch.from_numpy(np.frombuffer(data, dtype).reshape(shape).copy())
    if values.is_floating_point() and not values.isfinite().all():
        bad = int((~values.isfinite()).sum())
        raise RefusedError(f"{name} is not finite ({bad} of {values.numel()} values are nan or infinite)")
    return values.to(like.device)


def _listed(names: list[str], most: int = 6) -> str:
    shown = ", ".join(one_line(name, 40) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def one_line(value: object, most: int = 300) -> str:
    """Return a text from elsewhere, cut, with nothing in it that could break a line or steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in str(value)[: 4 * most]).strip()[:most]
