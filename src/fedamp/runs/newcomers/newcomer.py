"""Clients that join a run after its end: how they are kept out of it, how they are trained, and what they get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fedamp import seeds
from fedamp.config import Named, RunConfig
from fedamp.data.clients import Clients
from fedamp.errors import UserError
from fedamp.methods import Method
from fedamp.methods.alone_beside import ALONE, AloneBeside, without_alone
from fedamp.methods.newcomer import LISTENS, Joining
from fedamp.records.last_state import LastState
from fedamp.records.newcomers import Newcomer, difference_p, named, paired
from fedamp.records.summaries import Line, finite
from fedamp.records.take_home import CHOSEN, THEN_ALONE
from fedamp.runs.shard import ONE_PROCESS
from fedamp.training.sample_errors import sample_errors

if TYPE_CHECKING:  # a setup has its newcomers
    from fedamp.runs.result import Result
    from fedamp.runs.setup import Setup
    from fedamp.runs.standing import Standing

ROUNDS = 5
"""Rounds that a newcomer plays, unless it says otherwise. AutoAMP spends two of them on its probe."""
SETTING = "newcomer"
"""The setting of a newcomer's own record: it has no partition."""


def kept_out(config: RunConfig, total: int) -> list[int]:
    """Return the positions of the clients that are kept out of a run, in order: the same for every method."""
    if not config.newcomers:
        return []
    if config.newcomers >= total:
        raise UserError(
            f"newcomers is {config.newcomers}, of {total} clients; expected fewer: at least one takes part in the run"
        )
    if config.poisoned or config.noisy_clients:
        raise UserError(
            "newcomers are drawn by the seed, so numbers of poisoned or noisy clients may be theirs; leave out either"
        )
    drawn = seeds.generator(config.seed, "newcomers").permutation(total)[: config.newcomers]
    return sorted(int(position) for position in drawn)


def as_newcomer(config: RunConfig, rounds: int, setting: Named | None = None) -> RunConfig:
    """Return the configuration of a newcomer to a run: the same training, and it is the only client."""
    return replace(
        config,
        setting=setting or Named(SETTING),
        clients=1,
        rounds=rounds,
        alone=True,
        newcomers=0,
        absent=0.0,
        label_noise=0.0,
        noisy_clients=None,
        poisoned=(),
        attack=RunConfig.attack,
        replies="any",
    )


def arriving(setup: Setup, last: LastState, names: Sequence[str]) -> Setup:
    """Return the setup of a newcomer with the method as it meets it, and a model trained alone beside it."""
    return replace(setup, method=AloneBeside(Joining(setup.method, last.server, last.k, tuple(names))))


def setup_of(setup: Setup, method: Method, mine: Clients, name: str) -> Setup:
    """Return the setup of one newcomer, from that of the run: its own samples, and nobody who tampers."""
    facts = replace(
        setup.facts,
        names=[name],
        sizes=[len(mine.train[0])],
        test_sizes=[len(mine.test[0])],
        validation_sizes=[len(positions) for positions in mine.validation] or None,
        groups=None if mine.groups is None else list(mine.groups),
    )
    return replace(
        setup, method=method, clients=mine, facts=facts, tamper=lambda reply, who: reply, warnings=(), shard=ONE_PROCESS
    )


def with_joined(result: Result, setup: Setup, at: Standing) -> Result:
    """Return a newcomer's result with what it gets beside training alone; as it is, if nobody joined a run."""
    joining = without_alone(setup.method)
    if not isinstance(joining, Joining):
        return result
    kept, home = {**result.last_models, **result.best_models}, result.chosen  # each of its best validated round
    alone = kept[ALONE]
    errors = [sample_errors(setup.trainer, setup.clients, each.models)[0].numpy() for each in (home, alone)]
    better, worse, error = paired(result.summary.metric, *errors)
    name = (result.facts.names or ["newcomer"])[0]
    by_choice = result.take_home is not None and result.take_home.rule == CHOSEN
    entry = result.take_home.entry if result.take_home and by_choice else joining.scored
    on = result.then_alone if entry == THEN_ALONE else None
    mixed, made = (entry, home.round) if on is None else (on.entry, on.round)  # whose weights are told
    # What is received of a round is mixed after it. Who receives no model reports afterwards what it has mixed itself.
    later = mixed == "received" or "received" not in kept
    weights = _weights(result.history, setup, at, made + 1 if later else made)
    newcomer = Newcomer(
        name=name,
        metric=result.summary.metric,
        rounds=at.k,
        samples=len(setup.clients.train[0]),
        tested=len(setup.clients.test[0]),
        alone=finite(alone.scores[0]),
        received=finite(kept["received"].scores[0]) if "received" in kept else None,
        own=finite(kept["own"].scores[0]),
        chosen=finite(home.scores[0]),
        entry=entry,
        round=home.round,
        better=better,
        worse=worse,
        error=finite(error),
        weights=None if weights is None else named(weights, [*joining.names, name]),
        p=difference_p(result.summary.metric, *errors),
    )
    return replace(result, joined=newcomer, last_state=None)  # nobody joins a newcomer


def _weights(history: Sequence[Line], setup: Setup, at: Standing, k: int) -> Sequence[float] | None:
    """Return the weights in what a newcomer is sent in round k, which may be the one that is not played any more."""
    if k <= at.k:
        (line,) = [line for line in history if line["round"] == k]
        found: Sequence[float] | None = line.get(LISTENS)
        return found
    sent, _ = setup.method.server_send(at.server, k)
    weights = setup.method.diagnostics(sent).get(LISTENS)
    return None if weights is None else weights.tolist()
