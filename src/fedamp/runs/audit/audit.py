"""An audit from beginning to end: canaries in, rounds played, coins guessed, bounds beside the claim."""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.privacy import account
from fedamp.privacy.events import Spending
from fedamp.rows import Message
from fedamp.runs.audit.attack import Attacker
from fedamp.runs.audit.bounds import Curve, Guesses, area, epsilon_bound, is_broken, is_broken_on_average
from fedamp.runs.audit.canaries import make_canaries, with_canaries
from fedamp.runs.material import Material, load_material
from fedamp.runs.setup import Setup, assemble
from fedamp.training.torch_switches import use_threads

CANARIES = 1000
SHARE = 0.25
"""Of the canaries, how many coins are guessed: those with the highest and the lowest scores. For Gaussian noise of
epsilon 2 to 10 no other share gave larger bounds (simulated, 300 to 3000 canaries)."""
TOP = 0.1
"""The same, at most, if only the highest are guessed: a fault may show some samples clearly and all others not at all, as
many as a minibatch has."""
ANY_KIND = 0.2
"""Of the probability of a mistake, the part that the bound of any mechanism has; the others need it more."""
CONFIDENCE = 0.95
POINTS = 100
"""Of an account's trade-off curve."""
WIDEST = 64.0
"""The most that noise is looked for below or above the claimed one, as a factor."""


@dataclass(frozen=True)
class Audit:
    """What an audit has found."""

    client: str
    method: str
    rounds: int
    claimed: float | None  # epsilon by the account, or the one that was given; None: nothing is promised
    delta: float
    bound: float  # the larger of the two
    bound_of_any: float  # whatever the mechanism is: Steinke et al.
    bound_of_gaussian: float | None  # for steps like the claimed ones, with other noise: Mahloujifar et al.
    canaries: int
    inside: int
    guesses: int
    right: int
    area: float  # under the attack's curve: 0.5 knows nothing, 1 everything
    confidence: float
    repeats: int
    leaves: bool  # whether a model leaves the client at all; if none does, the audit is of what stays

    @property
    def broken(self) -> bool:
        """Whether more has leaked than was claimed."""
        return self.claimed is not None and self.bound > self.claimed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which knows no infinity."""
        values = {**asdict(self), "broken": self.broken}
        return {k: "inf" if v == math.inf else None if v != v else v for k, v in values.items()}

    def in_words(self) -> list[str]:
        """Return what was found, a line each; the last one is the verdict."""
        sure, at = f"{self.confidence:.0%} sure", f"at delta {self.delta:g}"
        claim = "nothing is promised" if self.claimed is None else f"epsilon {self.claimed:.2f} {at}"
        gaussian = "" if self.bound_of_gaussian is None else f", of noise like the claimed {self.bound_of_gaussian:.2f}"
        lines = [
            f"audit of {self.client}: {self.method}, {self.rounds} rounds, {self.canaries} canaries, {self.inside} in"
            + (f", in {self.repeats} repeats" if self.repeats > 1 else ""),
            f"  claimed      {claim}",
            f"  lower bound  epsilon {self.bound:.2f} {at}, {sure} (of any mechanism {self.bound_of_any:.2f}{gaussian})",
            f"  guesses      {self.right} of {self.guesses} right, area under the curve {self.area:.3f}",
        ]
        if not self.leaves:
            lines.append("  With this method no model leaves a client: attacked was the one that stays, after each round.")
        if self.claimed is None:
            return [*lines, f"Nothing is promised, and at least epsilon {self.bound:.2f} leaks."]
        if self.broken:
            return [
                *lines,
                f"The promise is BROKEN: epsilon {self.claimed:.2f} is claimed, and at least {self.bound:.2f} leaks "
                f"({sure}). Do not let this silo's models leave.",
            ]
        return [*lines, "No leak beyond the claim was found. That is no proof that there is none: the account is."]


@dataclass(frozen=True)
class Played:
    """What one run with canaries has shown."""

    scores: NDArray[np.float64]  # (m,)
    inside: NDArray[np.bool_]  # (m,)
    spent: Spending
    leaves: bool
    client: str


def audit(
    config: RunConfig,
    *,
    canaries: int = CANARIES,
    client: int = 0,
    repeats: int = 1,
    claim: float | None = None,
    confidence: float = CONFIDENCE,
    data_dir: Path | None = None,
    material: Material | None = None,
    observer: Callable[[int], None] = lambda played: None,
) -> Audit:
    """Play a run whose client number `client` has canaries, attack what leaves it, and return what that shows.

    It is repeated with other seeds, and thus other canaries, coins and noise. `claim` is compared with instead of the
    account's epsilon. `observer` is called with the number of rounds played so far. Nothing is written.
    """
    checks.share("confidence", confidence)
    checks.count("repeats", repeats)
    if claim is not None:
        checks.positive("claim", claim)
    if config.private and claim is None:
        account.check_available("an audit compares with the claimed epsilon")
    # What is held out or kept out leaves nothing, and an absent client only costs time.
    config = replace(config, validation=0.0, newcomers=0, alone=False, absent=0.0, take_home="scored")
    runs = []
    for number in range(repeats):
        before = number * config.rounds
        again = replace(config, seed=config.seed + number)
        given = load_material(again, data_dir) if material is None else material
        runs.append(one_run(again, given, canaries, client, lambda k, before=before: observer(before + k)))
    return judged(config, runs, claim, confidence)


def one_run(config: RunConfig, given: Material, count: int, place: int, observer: Callable[[int], None]) -> Played:
    """Play one run with canaries among the samples of the client at this place, and score them."""
    canaries = make_canaries(given, count, config.seed)
    setup = assemble(config, replace(given, clients=with_canaries(given.clients, canaries, place)))
    attacker = Attacker(setup.method, setup.trainer, *_others(setup, given, place), canaries)
    spent, leaves = play(setup, place, config.rounds, attacker, observer)
    names = setup.facts.names
    name = f"client {setup.clients.numbers[place]}" if names is None else names[place]
    return Played(attacker.scores(), canaries.inside, spent, leaves, name)


def _others(setup: Setup, material: Material, place: int) -> tuple[Any, Any]:
    """Return the client's first model, and the client alone with the samples that are no canaries."""
    alone, device = torch.tensor([place]), setup.clients.x.device
    return setup.w[alone.to(device)], material.clients.take(alone).to(device)


def play(
    setup: Setup, place: int, rounds: int, attacker: Attacker, observer: Callable[[int], None]
) -> tuple[Spending, bool]:
    """Play all rounds with all clients, let the attacker look at one; return what that one spent, and if models left."""
    method, clients = setup.method, setup.clients
    server, mine = method.server_init(setup.w), method.client_init(setup.w)
    everyone = torch.ones(len(clients), dtype=torch.bool, device=setup.w.params.device)
    spent: Spending = Counter()
    leaves = False
    with use_threads(setup.choice.threads):
        for k in range(1, rounds + 1):
            server, message = method.server_send(server, k)
            local = setup.trainer.local(clients, k)
            mine, reply = method.client_update(mine, message, local)
            spent += local.spent[place]
            if attacker.look(_of(place, message), _of(place, reply)):
                leaves = True
            else:
                attacker.look({}, {"": _of(place, method.client_models(mine, message))["own"]})
            server = method.server_receive(server, reply, everyone)
            observer(k)
    return spent, leaves


def _of(place: int, message: Message) -> dict[str, Any]:
    """Return one client's part of what travels."""
    return {name: rows[slice(place, place + 1)] for name, rows in message.items()}


def judged(config: RunConfig, runs: Sequence[Played], claim: float | None, confidence: float) -> Audit:
    """Return what the scores of runs show, given the coins."""
    delta, mistake = config.dp_delta, 1 - confidence
    guesses = sum_of(guessed(run.scores, run.inside) for run in runs)
    claimed, gaussian = claim, None
    if config.private and claim is None:
        spent = max((run.spent for run in runs), key=lambda each: account.epsilon(each, delta))
        claimed = account.epsilon(spent, delta)
        share = min(TOP, max((event.rate for event in spent), default=1.0) / 2)
        top = sum_of(guessed_in(run.scores, run.inside, share) for run in runs)
        shares = [guessed(run.scores, run.inside, 1.0).share for run in runs]
        gaussian = gaussian_bound([guesses, top], shares, spent, delta, mistake * (1 - ANY_KIND))
        mistake *= ANY_KIND
    any_kind = epsilon_bound(guesses, delta, mistake)
    return Audit(
        client=runs[0].client,
        method=config.method.name,
        rounds=config.rounds,
        claimed=claimed,
        delta=delta,
        bound=max(any_kind, gaussian or 0.0),
        bound_of_any=any_kind,
        bound_of_gaussian=gaussian,
        canaries=guesses.canaries,
        inside=int(sum(run.inside.sum() for run in runs)),
        guesses=guesses.made,
        right=guesses.right,
        area=float(np.mean([area(run.scores[run.inside], run.scores[~run.inside]) for run in runs])),
        confidence=confidence,
        repeats=len(runs),
        leaves=all(run.leaves for run in runs),
    )


def sum_of(guesses: Iterable[Guesses]) -> Guesses:
    """Return the guesses of several runs as those of one."""
    return functools.reduce(operator.add, guesses)


def guessed(scores: NDArray[np.float64], inside: NDArray[np.bool_], share: float = SHARE) -> Guesses:
    """Return how many guesses are right: the highest scores are taken for canaries that are in, the lowest for out."""
    if not np.isfinite(scores).all():
        raise UserError("the models that left are not finite, so that nothing can be guessed from them; lower --lr")
    half = max(1, round(share * len(scores) / 2))
    order = np.argsort(scores, kind="stable")
    right = int((~inside[order[:half]]).sum() + inside[order[-half:]].sum())
    return Guesses(len(scores), 2 * half, right)


def guessed_in(scores: NDArray[np.float64], inside: NDArray[np.bool_], share: float) -> Guesses:
    """Return how many guesses are right if only the highest scores are guessed, as canaries that are in."""
    count = max(1, round(share * len(scores)))
    return Guesses(len(scores), count, int(inside[np.argsort(scores, kind="stable")[-count:]].sum()))


def gaussian_bound(
    tries: Sequence[Guesses], shares: Sequence[float], spent: Spending, delta: float, mistake: float
) -> float:
    """Return a lower bound of epsilon for steps like these, of the same rates, whose noise is not what was claimed.

    It is the epsilon of steps with s times the claimed noise, for the largest s that is not refuted: neither by one of the
    `tries`, nor by the `shares` of right guesses of all coins in several runs. Each test has its share of `mistake`.
    """
    if not spent:
        return 0.0
    several = len(shares) > 1
    each = mistake / (len(tries) + several)

    def refuted(s: float) -> bool:
        curve = curve_of(account.scaled(spent, s))
        return any(is_broken(one, curve, each) for one in tries) or (
            several and is_broken_on_average(shares, curve, each)
        )

    low, high = 1 / WIDEST, WIDEST
    for _ in range(14):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return account.epsilon(account.scaled(spent, high), delta)


def curve_of(spent: Spending) -> Curve:
    """Return the trade-off curve of what was spent, from the account."""
    largest = max(account.epsilon(spent, 1e-9), 1e-3)
    epsilons = np.linspace(0.0, min(largest, 700.0), POINTS)
    return Curve(epsilons, np.array(account.deltas(spent, epsilons.tolist())))
