"""The loop of a run: rounds, one after another, from a setup to a result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.records.folder import RunFolder
from fedamp.records.last_state import LastState
from fedamp.records.newcomers import Newcomers
from fedamp.row_store import use_store
from fedamp.runs.agreement import agree
from fedamp.runs.client_half import client_half
from fedamp.runs.conclusion import conclude, read_again
from fedamp.runs.journal import Journal, round_line, unplayed_line
from fedamp.runs.newcomers.newcomer import ROUNDS, arriving, as_newcomer
from fedamp.runs.result import Result
from fedamp.runs.round import Round, play_round
from fedamp.runs.scoring import held_out, scored_again, scores
from fedamp.runs.setup import Setup
from fedamp.runs.simulated_faults import draw_present
from fedamp.runs.spending import Spent
from fedamp.runs.standing import Standing
from fedamp.training.torch_switches import keep_freed_memory, use_deterministic, use_threads
from fedamp.used_memory import used_again

Observer = Callable[[Mapping[str, Any]], bool | None]
"""Called with each round's line as soon as it is there, that of the first models included. Once it returns False for a
round that was played, the run ends after it."""


def ignore(line: Mapping[str, Any]) -> None:
    """Take no notice of a round: the observer of a run that nobody observes."""


def all_of(*observers: Observer) -> Observer:
    """Return one observer for several: each sees every line, and each can end the run."""

    def observe(line: Mapping[str, Any]) -> bool:
        answers = [observer(line) for observer in observers]
        return not any(answer is False for answer in answers)

    return observe


def play(config: RunConfig, setup: Setup, folder: RunFolder | None = None, observer: Observer = ignore) -> Result:
    """Play all rounds of a run, and return its result.

    A run that was interrupted continues from its folder's last checkpoint and ends as if it had not been; one that is
    finished is read again. Interrupted, or ended by its observer, it leaves a readable folder: every round so far, its
    models, and their scores. Of several processes (`shard`) each plays its own clients' part of every round, the first
    one writes, and only its observer is asked.
    """
    shard = setup.shard
    if shard.team is not None:
        agree(shard.team, config, setup)
    if folder is None:
        return _played(config, setup, None, observer)
    with contextlib.ExitStack() as alone:

        def finished() -> bool:
            return folder.finished(config.to_dict()) is not None

        def begin() -> bool:
            alone.enter_context(folder.alone())
            return finished()  # by another process, while this one looked

        # A finished run is only read, which takes no right to write.
        if shard.from_leader("the folder", lambda: finished() or begin()):
            return read_again(config, setup, folder)
        return _played(config, setup, folder, observer)


def _played(config: RunConfig, setup: Setup, folder: RunFolder | None, observer: Observer) -> Result:
    """Play the rounds that are not played yet."""
    shard = setup.shard
    setup = setup.writing_to(None if folder is None else folder.path)
    journal, saved = Journal.begin(config, setup, folder)
    setup = setup if saved is None else setup.as_before(saved.how)
    interrupt, going_on = None, True
    with _computing(config, setup), shard.patient():
        at = Standing.first(setup) if saved is None else Standing.saved(saved, setup)
        if saved is None:
            first = journal.add(unplayed_line(0, scores(setup, at.models(setup), torch.arange(len(setup.clients)))))
            shard.from_leader("the first models", partial(observer, first))
        spent = Spent.until(journal.lines, setup.facts, len(setup.clients))
        best = scored_again(config, setup, at.best)
        at = replace(at, best=best, held_out=held_out(config, setup, journal.lines), spent=spent)
        try:
            while going_on and at.k < config.rounds:
                clock, k = time.perf_counter(), at.k + 1
                played = _next_round(config, setup, at)
                scored = scores(setup, played.models, played.present.nonzero()[:, 0])
                spent = at.spent.after(played.spent)
                events = [*shard.told_once("events", setup.trainer.take_events()), *spent.events]
                scored = {**spent.line(played.spent), **scored}
                line = journal.add(round_line(k, played, events, scored, time.perf_counter() - clock))
                at = at.after(played, line, config, setup)  # an interrupt before this takes the line back
                try:
                    going_on, due = shard.from_leader("a round", partial(_seen, observer, line, journal))
                except KeyboardInterrupt:
                    raise
                except BaseException:  # a fault in the observer costs none of the rounds: the run can go on from here
                    journal.save(partial(at.checkpoint, setup))
                    raise
                if due:
                    journal.save(partial(at.checkpoint, setup))
                del played  # and the messages of this round with it: the next round makes its own
                shard.stop_together()
        except KeyboardInterrupt as stop:
            if at.k == 0:  # not even a first round: there is nothing to conclude
                raise
            interrupt = stop
            journal.forget_after(at.k)
        newcomers = None
        if setup.newcomers and at.k == config.rounds:
            # Newcomers take their time, too: after a stop it goes on from here.
            journal.save(partial(at.checkpoint, setup))
            if interrupt is not None:
                raise interrupt
            newcomers = _welcomed(config, setup, at)
        alone = config.then_alone and at.k == config.rounds and going_on and interrupt is None
        further = observer if alone else None
        result = conclude(config, setup, at, journal, newcomers, further)
        if interrupt is not None:
            raise interrupt
        if result.history[-1]["round"] > at.k and further is None:
            shard.from_leader("the last models", partial(observer, result.history[-1]))
    return result


def _seen(observer: Observer, line: Mapping[str, Any], journal: Journal) -> tuple[bool, bool]:
    """Return whether the run goes on after this round, and whether a checkpoint is due."""
    return observer(line) is not False, journal.due()


def _welcomed(config: RunConfig, setup: Setup, at: Standing) -> Newcomers:
    """Let each client that was kept out join where the run stands, by itself, and return what they get.

    Of several processes each lets some join.
    """
    last, names = LastState(at.k, at.server), setup.facts.names or []
    mine = as_newcomer(config, ROUNDS)
    found = setup.shard.each(setup.newcomers, lambda late: play(mine, arriving(late, last, names)).joined)
    return Newcomers(tuple(one for one in found if one is not None))


def _next_round(config: RunConfig, setup: Setup, at: Standing) -> Round:
    """Play the round after a standing."""
    k = at.k + 1
    return play_round(
        setup.method,
        at.server,
        at.clients,
        k,
        local_for=lambda who: setup.trainer.local(setup.clients.take(who), k),
        present=draw_present(config.seed, k, len(setup.clients), config.absent),
        tamper=setup.tamper,
        checked=config.checks_replies,
        poisoned=config.poisoned,
        names=setup.facts.names,
        half=client_half(setup.store, setup.trainer),
        shard=setup.shard,
    )


@contextlib.contextmanager
def _computing(config: RunConfig, setup: Setup) -> Iterator[None]:
    """Set threads and algorithms as the run wants them; say what to do if its models do not fit into memory."""
    if setup.store.device.type == "cpu":
        keep_freed_memory()
    try:
        with (
            used_again(),
            use_threads(setup.choice.threads),
            use_deterministic(config.deterministic),
            use_store(setup.store),
        ):
            yield
    except RuntimeError as error:
        # A chunk of clients that does not fit is halved; what is left here are the models of all of them.
        if isinstance(error, torch.OutOfMemoryError):
            where, cure = "the device's memory", "Keep them on the host (--rows host)"
        elif "DefaultCPUAllocator" in str(error):  # torch has no type for it
            where, cure = "the host's memory", "Keep them on disk (--rows disk)"
        else:
            raise
        raise UserError(
            f"the models of {len(setup.clients)} clients do not fit into {where} ({str(error).split('.')[0]}); "
            f"`fedamp run --dry-run` shows the sizes. {cure}, or use fewer clients"
        ) from None
