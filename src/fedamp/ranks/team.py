"""The processes of one run, and what they tell each other: `torch.distributed`, with bounded waits and plain words.

Numbers on a GPU travel by NCCL, all else by gloo. Everything that is told has a purpose, which must be the same
everywhere: processes that do different things are told so, and none waits for what never comes.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor

from fedamp.errors import INTERRUPTED, UserError
from fedamp.ranks.launched import Launched, SharedError, launched, patience, threads
from fedamp.used_memory import empty_stack

T = TypeVar("T")

SAME = 1.0
"""Seconds in which a second Ctrl-C is the first one again: it may come from the terminal and from torchrun."""

FEW = 1 << 14
"""Bytes that processes tell each other in one go; for more they first say how many."""


class _Packer(pickle.Pickler):
    """Pickles a tensor that is a part of another one without the rest, which it would take along: all rows, say."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, Tensor) and thing.untyped_storage().nbytes() > thing.nbytes:
            alone: Any = thing.clone(memory_format=torch.contiguous_format)
            return alone.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


def packed(things: object) -> bytes:
    """Return small things of any kind as bytes."""
    return _packed(things).getvalue()


def _packed(things: object) -> io.BytesIO:
    """Return things of any kind and size as bytes that are in memory once."""
    into = io.BytesIO()
    _Packer(into, pickle.HIGHEST_PROTOCOL).dump(things)
    return into


@dataclass(frozen=True)
class _End:
    """What ended the work of the leader: an error, an exit, Ctrl-C."""

    words: str
    interrupted: bool

    @classmethod
    def of(cls, fault: BaseException) -> _End:
        """Return it in words."""
        what = f"failed: {fault}" if isinstance(fault, Exception) else f"ended: {type(fault).__name__} {fault}"
        return cls(f"the leading process has {what}", isinstance(fault, KeyboardInterrupt))


@dataclass
class Team:
    """All processes of a run, seen from one of them."""

    me: Launched
    interrupted: bool = field(default=False, init=False)  # Ctrl-C came here, and waits for the end of the round
    stopped: bool = field(default=False, init=False)  # it came to some process: what all of them heard last
    since: float = field(default=0.0, init=False)  # when it came here

    @property
    def rank(self) -> int:
        """Which process this is, from 0."""
        return self.me.rank

    @property
    def size(self) -> int:
        """How many there are."""
        return self.me.size

    def exchange(self, purpose: str, mine: Any = None) -> list[Any]:
        """Return what every process gives, in the order of ranks: small things of any kind."""
        found = [pickle.loads(each) for each in self._all_bytes(purpose, packed((purpose, self.interrupted, mine)))]
        self.stopped = any(interrupted for _, interrupted, _ in found)
        purposes = [each for each, _, _ in found]
        if len(set(purposes)) > 1:
            words = ", ".join(f"{i} at {each!r}" for i, each in enumerate(purposes))
            raise SharedError(f"the processes do not do the same: {words}; start all with the same command")
        return [value for _, _, value in found]

    def _all_bytes(self, purpose: str, mine: bytes) -> list[bytes]:
        """Return every process's bytes, at once if they are few: each meeting takes time on a busy machine."""
        import torch.distributed as dist

        room = FEW
        while True:
            head = len(mine).to_bytes(8, "big") + mine[:room]
            own = torch.frombuffer(bytearray(head.ljust(room + 8, b" ")), dtype=torch.uint8)
            found = [torch.empty_like(own) for _ in range(self.size)]
            with self._waiting(purpose):
                dist.all_gather(found, own)
            texts = [bytes(each.numpy()) for each in found]
            sizes = [int.from_bytes(text[:8], "big") for text in texts]
            if max(sizes) <= room:
                return [text[8 : 8 + size] for text, size in zip(texts, sizes, strict=True)]
            room = max(sizes)

    def from_leader(self, purpose: str, make: Callable[[], T]) -> T:
        """Return what the leader makes; the others do not make it, but hear what ended it: Ctrl-C ends them like it.

        What is large, a checkpoint say, goes to each of them once: the others have nothing to send for it.
        """
        made, fault, sent = None, None, io.BytesIO()
        if not self.rank:
            try:
                made = make()
                sent = _packed(made)
            except BaseException as problem:  # whatever it is, the others wait for a word
                fault = problem
        size = sent.getbuffer().nbytes
        few = sent.getvalue() if size <= FEW // 2 else None
        try:
            size, few, end = self.exchange(purpose, (size, few, None if fault is None else _End.of(fault)))[0]
        except UserError as gone:  # the others may have ended by the same Ctrl-C
            raise fault or gone from None
        if fault is not None:
            raise fault
        if end is not None:
            raise KeyboardInterrupt if end.interrupted else SharedError(end.words)
        told = self._broadcast(purpose, sent, size) if few is None else few
        return made if not self.rank else pickle.loads(told)  # type: ignore[return-value]

    def _broadcast(self, purpose: str, sent: io.BytesIO, size: int) -> memoryview:
        """Return the bytes of which the leader has `size`."""
        import torch.distributed as dist

        whole = torch.empty(size, dtype=torch.uint8)
        if not self.rank:
            whole = torch.frombuffer(sent.getbuffer(), dtype=torch.uint8)
        with self._waiting(purpose):
            dist.broadcast(whole, src=0)
        return whole.numpy().data

    def stack(self, purpose: str, mine: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the rows of all processes, of which each gives `counts[rank]`, on top of each other."""
        import torch.distributed as dist

        whole = empty_stack((sum(counts), *mine.shape[1:]), mine)
        for rank, part in enumerate(torch.split(whole, list(counts))):
            if rank == self.rank:
                part.copy_(mine)
            if part.numel():
                with self._waiting(purpose):
                    # As bytes, so that every type of number travels; the part is a view of the whole.
                    dist.broadcast(part.view(torch.uint8), src=rank)
        return whole

    def agree(self, what: str, mine: Any, cure: str) -> None:
        """Raise unless this is the same in every process."""
        found = self.exchange(what, mine)
        other = [rank for rank, each in enumerate(found) if each != found[0]]
        if other:
            who = ", ".join(map(str, other))
            raise SharedError(f"{what} of process {who} is not that of process 0; {cure}")

    def stop_together(self) -> None:
        """Raise the KeyboardInterrupt that has come to any of the processes, in all of them, as all heard last."""
        if self.stopped:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """Let Ctrl-C wait for the end of a round inside: all processes stop after the same one.

        One that came too late for that is raised at the end, in all of them. A second one ends the process at once.
        """
        self.interrupted = self.stopped = False
        try:
            with self._noting():
                yield
                self.exchange("the end")
                self.stop_together()
        finally:  # whoever asked for it has ended this run; the next one is another
            self.interrupted = self.stopped = False

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Note Ctrl-C inside, instead of raising KeyboardInterrupt wherever it comes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: object) -> None:
            now = time.monotonic()
            if self.interrupted and now > self.since + SAME:
                if not self.rank:
                    _say_at_once("interrupted within a round; the same command goes on from the last checkpoint")
                end_at_once(INTERRUPTED)
            if not self.interrupted:
                self.interrupted, self.since = True, now

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if self.interrupted:  # after all had met for the last time
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _waiting(self, purpose: str) -> Iterator[None]:
        """Turn the end of a wait for processes that have ended, or do not answer, into one line."""
        try:
            yield
        except RuntimeError as error:
            if self.interrupted:
                raise KeyboardInterrupt from None
            why = " ".join(str(error).split())[:160]
            raise UserError(
                f"another process of this run has ended, or did not answer for {patience():g} s, while this one waited "
                f"for {purpose}; its own line says why. Once that is cured, the same command continues from the last "
                f"checkpoint (torch says: {why})"
            ) from None


@cache
def team() -> Team | None:
    """Return the processes that were started together, which find each other at the first call; None if alone."""
    me = launched()
    if me is None:
        return None
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        raise UserError(
            f"this is {me.words}, but torch was built without distributed processes (gloo); install a torch that has "
            "them, or start one process without torchrun"
        )
    if not dist.is_initialized():
        _meet(me)
    if (share := threads(me.local_size)) is not None:
        torch.set_num_threads(share)
    return Team(me)


def _meet(me: Launched) -> None:
    import torch.distributed as dist

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=patience()))
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(f"{me.words} can't reach the others by {backend} ({why}); start all of them again") from None
    atexit.register(_part)


def _part() -> None:
    import torch.distributed as dist

    with contextlib.suppress(Exception):  # the others may be gone
        dist.destroy_process_group()


def has_met() -> bool:
    """Return whether this process is connected with the others."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def leave(code: int) -> NoReturn:
    """End this process, one of several, once all is done and written, or a mistake is told.

    Not by the interpreter's own end: with threads of the processes' connections still there, that has aborted (one of
    some hundred ends, "terminate called without an active exception"), and torchrun would call the run a failure.
    """
    _part()
    end_at_once(code)


def _say_at_once(words: str) -> None:
    """Write a line to stderr past Python's buffers, which may be in use, below a bar that has hidden the cursor."""
    shown = b"\x1b[?25h\r\n" if os.isatty(2) else b""
    with contextlib.suppress(OSError):
        os.write(2, shown + f"fedamp: {words}\n".encode())


def end_at_once(code: int) -> NoReturn:
    """End this process wherever it is; a run's folder can be read and continued at any moment."""
    with contextlib.suppress(Exception):  # it may be in the midst of writing there
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def from_leader(purpose: str, make: Callable[[], T]) -> T:
    """Return what the leading process makes, in all of them; alone, what this one makes."""
    us = team()
    return make() if us is None else us.from_leader(purpose, make)


def by_all(purpose: str, make: Callable[[], T]) -> T:
    """Return what this process makes for itself, as the others do; a mistake that all of them find is a shared one."""
    us = team()
    if us is None:
        return make()
    made, mistake = None, None
    try:
        made = make()
    except UserError as problem:
        mistake = problem
    found = us.exchange(purpose, None if mistake is None else str(mistake))
    if mistake is not None:
        raise SharedError(str(mistake)) if len(set(found)) == 1 else mistake
    who = [str(rank) for rank, words in enumerate(found) if words is not None]
    if who:
        raise SharedError(
            f"process {', '.join(who)} of this run has found a mistake in {purpose}; its own line says why"
        )
    return made  # type: ignore[return-value]
