"""Switches of the whole process: threads, type of numbers, deterministic algorithms, what the C library keeps."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

import torch

KEPT, IN_PLACE = 1 << 30, 1 << 25
"""Bytes that the C library keeps free for the next step, and bytes from which on a tensor has pages of its own."""


@contextlib.contextmanager
def use_threads(threads: int) -> Iterator[None]:
    """Let torch use this many threads inside, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def use_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Let tensors inside be of this type unless another is named, and as before afterwards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def use_deterministic(wanted: bool) -> Iterator[None]:
    """Let torch use only algorithms that give the same bits every time, if that is wanted."""
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def keep_freed_memory() -> None:
    """Let the C library keep what a step frees for the next one: new pages can take a third of a CPU's time.

    Only with glibc, and for the rest of the process; elsewhere nothing happens.
    """
    trim, from_map = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(trim, KEPT)
        library.mallopt(from_map, IN_PLACE)


def give_back_freed_memory() -> None:
    """Let the C library give back what it keeps: with glibc; elsewhere nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
