"""Clients side by side on a CPU: some workers, each a thread with its own module, take one client after another.

torch's kernels leave Python's lock alone, the number of a kernel's threads is each thread's own, and a backward pass
runs in the thread that asks for it. So one client a core is faster than one client on all cores, whose kernels wait for
each other (docs/performance.md); and since a client's numbers come from one thread, they are the same bits however many
cores there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from threading import Event

import torch
from torch import Tensor

DIVIDED = 0.86
"""Share of a step's work that the threads of a kernel can divide among them, at best: the CNN at batch 100 is 1.75
times as fast with two threads as with one. By Amdahl's law c threads gain at most 1 / (1 - 0.86 + 0.86 / c)."""


class Stopped(Exception):  # noqa: N818, it is no error
    """The work of a worker is not wanted any more: another one failed, or the user has stopped the run."""


def workers_for(work: Sequence[int], cores: int, at_most: int) -> int:
    """Return how many workers share this work, given as samples of each client; 1 if kernels' threads gain as much.

    Each worker takes the largest client that is left. So if one client has most of the work, or if there are fewer
    clients than cores, some would be idle.

    >>> workers_for([10] * 20, 2, 8), workers_for([10] * 3, 2, 8), workers_for([90, 1, 1, 1], 2, 8)
    (2, 1, 1)
    """
    workers = min(cores, len(work), at_most)
    busy = [0] * workers
    for samples in sorted(work, reverse=True):
        busy[busy.index(min(busy))] += samples
    gain, of_threads = sum(work) / max(busy), 1 / (1 - DIVIDED + DIVIDED / cores)
    return workers if gain > of_threads else 1


def side_by_side(jobs: Sequence[int], workers: Sequence[Callable[[int], None]], stop: Event) -> None:
    """Do all jobs, begun in this order, each by the next worker that is free, with one thread in its kernels.

    What a worker raises is raised here, the first job's of several, and so is an interrupt. Either sets `stop`, upon
    which workers may raise `Stopped`; when this function ends, none is at work any more.
    """
    left, failed = deque(jobs), dict[int, Exception]()

    def keep_busy(work: Callable[[int], None]) -> None:
        torch.set_num_threads(1)
        while left and not stop.is_set():
            try:
                job = left.popleft()
            except IndexError:  # another one was faster
                return
            try:
                work(job)
            except Stopped:
                return
            except Exception as error:
                failed[job] = error
                stop.set()

    usual = torch.get_num_threads()
    with ThreadPoolExecutor(len(workers), thread_name_prefix="client") as pool:
        # Which store rows are kept in is a matter of context; autocast, like this, is each thread's own.
        running = [pool.submit(copy_context().run, keep_busy, work) for work in workers]
        try:
            wait(running)
        except BaseException:
            stop.set()
            raise
        finally:
            wait(running)
            torch.set_num_threads(usual)  # what threads begin with that are made later
    if failed:
        raise failed[min(failed)]
    for one in running:
        one.result()  # a fault of ours


class Desk:
    """What one worker keeps from client to client: memory of a row's size, used again and again.

    New pages for a large row take longer than what is computed in them.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def like(self, row: Tensor, name: str) -> Tensor:
        """Return memory in the shape of this row, always the same by this name; what it holds is left over."""
        kept = self._kept.get(name)
        if kept is None or kept.shape != row.shape or kept.dtype != row.dtype:
            kept = self._kept[name] = torch.empty_like(row, memory_format=torch.contiguous_format)
        return kept
