"""Where all clients' rows are kept: on the device that trains, on the host, or on its disk.

Rows that are kept apart from that device go there in parts: some clients that train, some columns of a product. The
store in use (`use_store`) says where new stacks are made and where products are computed. Without one, and with rows on
the device, stacks are where they were made, and so is all that is computed from them.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedamp.errors import UserError
from fedamp.used_memory import empty_stack

DEVICE, HOST, DISK = "device", "host", "disk"

CPU = torch.device("cpu")
GIB = 1 << 30
SMALL = 1 << 20
"""Bytes up to which a stack stays in memory whatever is asked for: a number for each client is not worth a file."""
PIECE = 1 << 24
"""Entries that go between host and device at once, at least one row: what is pinned for it is bounded."""


@dataclass(frozen=True)
class RowStore:
    """Where rows are kept, and the device that trains them."""

    device: torch.device
    place: str = DEVICE
    folder: Path | None = None  # of files; by default the system's own for temporary ones

    @property
    def apart(self) -> bool:
        """Whether rows go to the device in parts only."""
        return self.place != DEVICE

    @property
    def home(self) -> torch.device:
        """Where torch sees the rows."""
        return CPU if self.apart else self.device

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a new stack whose values are still to be written; raise if there is no room for it."""
        size = math.prod(shape) * dtype.itemsize
        if size <= SMALL:
            return torch.empty(shape, dtype=dtype)
        if self.place == DISK:
            return in_a_file(shape, dtype, self.files)
        if (free := free_memory(CPU)) is not None and size > free:
            raise UserError(
                f"the rows of {shape[0]} clients take {size / GIB:.2f} GiB more on the host, and {free / GIB:.2f} GiB "
                "are free; keep them on disk (--rows disk), or use fewer clients or a smaller model"
            )
        return torch.empty(shape, dtype=dtype)

    @property
    def files(self) -> Path:
        """The folder of the files."""
        return Path(tempfile.gettempdir()) if self.folder is None else self.folder


def in_a_file(shape: tuple[int, ...], dtype: torch.dtype, folder: Path) -> Tensor:
    """Return a tensor whose values are in a file that has no name any more.

    So the file ends with the tensor, and with the process, however that ends. Its space is taken at once: a disk that
    is full later would end the process without a word.
    """
    size = math.prod(shape) * dtype.itemsize
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            mapped = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise UserError(
            f"the rows of {shape[0]} clients take {size / GIB:.2f} GiB more on the disk of {folder}, where they can't "
            f"be kept ({error.strerror}); choose a folder with more room (--out, or TMPDIR), fewer clients or a "
            "smaller model"
        ) from None
    return torch.frombuffer(mapped, dtype=dtype).view(shape)


_in_use: ContextVar[RowStore | None] = ContextVar("row store", default=None)


@contextlib.contextmanager
def use_store(store: RowStore | None) -> Iterator[None]:
    """Let new stacks be made in this store inside, and products be computed on its device."""
    token = _in_use.set(store if store is not None and store.apart else None)
    try:
        yield
    finally:
        _in_use.reset(token)


def new_stack(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return an empty stack of this shape for what is made of rows like these."""
    store = _in_use.get()
    return empty_stack(shape, like) if store is None or like.device != CPU else store.empty(shape, like.dtype)


def taken(rows: Tensor, index: Tensor) -> Tensor:
    """Return the rows at `index` (a mask or positions): a copy, unless they are all rows in their order."""
    if is_everyone(index, len(rows)):
        return rows
    store = _in_use.get()
    if store is None or rows.device != CPU:
        return rows[index]
    where = index.nonzero()[:, 0] if index.dtype == torch.bool else index
    return torch.index_select(rows, 0, where, out=store.empty((len(where), rows.shape[1]), rows.dtype))


def is_everyone(index: Tensor, num_clients: int) -> bool:
    """Return whether an index (a mask or positions) is that of all rows in their order."""
    if len(index) != num_clients:
        return False
    if index.dtype == torch.bool:
        return bool(index.all())
    return torch.equal(index, torch.arange(num_clients, device=index.device))


def computing_device(rows: Tensor) -> torch.device:
    """Return where products of these rows are computed."""
    store = _in_use.get()
    return rows.device if store is None or rows.device != CPU else store.device


def moved(rows: Tensor, device: torch.device | str, index: Tensor | slice | None = None) -> Tensor:
    """Return rows `(n, d)`, or those at `index` (positions), on a device; one row that stands for many is moved once.

    What goes from the host to a GPU goes through pinned memory, piece by piece: the next piece is gathered while the
    last one is on its way. To pin all rows instead would take time, and up to twice their memory.
    """
    device = torch.device(device)
    if len(rows) > 1 and rows.stride(0) == 0 and device != rows.device:
        count = len(rows) if index is None else len(range(len(rows))[index]) if isinstance(index, slice) else len(index)
        return rows[:1].to(device).expand(count, -1)
    if isinstance(index, slice):
        rows, index = rows[index], None
    if rows.device != CPU or device == CPU:
        return (rows if index is None else rows[index]).to(device)
    count = len(rows) if index is None else len(index)
    there = torch.empty((count, rows.shape[1]), dtype=rows.dtype, device=device)
    for part in _pieces(there):
        staged = _staging(there[part])
        if index is None:
            staged.copy_(rows[part])
        else:
            torch.index_select(rows, 0, index[part], out=staged)
        there[part].copy_(staged, non_blocking=True)
    return there


def write(stack: Tensor, rows: Tensor, index: Tensor | None = None) -> None:
    """Write rows to a stack, all of it or its rows at `index` (positions); from a GPU through pinned memory."""
    for part in _pieces(rows):
        values = rows[part]
        if rows.device != CPU and stack.device == CPU:
            values = _staging(values).copy_(values)
        if index is None:
            stack[part].copy_(values)
        else:
            stack.index_copy_(0, index[part], values)


def _staging(like: Tensor) -> Tensor:
    """Return memory of the host from and to which a GPU copies by itself."""
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=torch.cuda.is_available())


def _pieces(rows: Tensor) -> Iterator[slice]:
    height = max(1, PIECE // max(1, rows.shape[1]))
    for begin in range(0, len(rows), height):
        yield slice(begin, begin + height)


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that are free on a device, or None if the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":") for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
