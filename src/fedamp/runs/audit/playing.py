"""An audit from beginning to end: canaries in, rounds played, coins guessed, bounds beside the claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from fedamp import checks
from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.privacy import account
from fedamp.privacy.events import Spending
from fedamp.ranks.launched import FROM_PYTHON, one_process
from fedamp.records.client_names import client_name, client_number
from fedamp.rows import Message, Rows
from fedamp.runs.audit.attack import Attacker
from fedamp.runs.audit.canaries import make_canaries, with_canaries
from fedamp.runs.audit.finding import Audit
from fedamp.runs.audit.verdict import Played, judged
from fedamp.runs.material import Material, load_material
from fedamp.runs.setup import Setup, assemble
from fedamp.training.torch_switches import use_threads

CANARIES = 1000
CONFIDENCE = 0.95


def audit(
    config: RunConfig,
    *,
    canaries: int = CANARIES,
    client: int | str = 0,
    repeats: int = 1,
    claim: float | None = None,
    confidence: float = CONFIDENCE,
    data_dir: Path | None = None,
    material: Material | None = None,
    observer: Callable[[int], None] = lambda played: None,
) -> Audit:
    """Play a run in which one client, by number or name, has canaries; attack what leaves it, and return what it shows.

    It is repeated with other seeds, and thus other canaries, coins and noise. `claim` is compared with instead of the
    account's epsilon. `observer` is called with the number of rounds played so far. Nothing is written.
    """
    one_process("an audit", FROM_PYTHON)
    checks.share("confidence", confidence)
    checks.count("repeats", repeats)
    if claim is not None:
        checks.positive("claim", claim)
    if config.private and claim is None:
        account.check_available("an audit compares with the claimed epsilon")
    # What is held out or kept out leaves nothing, and an absent client only costs time.
    config = replace(config, validation=0.0, newcomers=0, alone=False, then_alone=0)
    config = replace(config, absent=0.0, take_home="scored", rows="device")
    runs = []
    for number, again in enumerate([replace(config, seed=config.seed + number) for number in range(repeats)]):
        before = number * config.rounds
        given = load_material(again, data_dir) if material is None else material
        runs.append(one_run(again, given, canaries, client, partial(_with_earlier, observer, before)))
    return judged(config, runs, claim, confidence)


def _with_earlier(observer: Callable[[int], None], before: int, k: int) -> None:
    observer(before + k)


def one_run(
    config: RunConfig, given: Material, count: int, client: int | str, observer: Callable[[int], None]
) -> Played:
    """Play one run with canaries among the samples of one client, and score them."""
    place = client_number(client, given.facts.names, len(given.clients))
    canaries = make_canaries(given, count, config.seed)
    setup = assemble(config, replace(given, clients=with_canaries(given.clients, canaries, place)))
    attacker = Attacker(setup.method, setup.trainer, *_others(setup, given, place), canaries)
    spent, leaves = play(setup, place, config.rounds, attacker, observer)
    return Played(attacker.scores(), canaries.inside, spent, leaves, client_name(place, setup.facts.names))


def _others(setup: Setup, material: Material, place: int) -> tuple[Rows, Clients]:
    """Return the client's first model, and the client alone with the samples that are no canaries."""
    alone, device = torch.tensor([place]), setup.clients.x.device
    return setup.w[alone.to(device)], material.clients.take(alone).to(device)


def play(
    setup: Setup, place: int, rounds: int, attacker: Attacker, observer: Callable[[int], None]
) -> tuple[Spending, bool]:
    """Play all rounds with all clients, let the attacker look at one; return what it spent, and if models left."""
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


def _of(place: int, message: Message) -> Message:
    """Return one client's part of what travels."""
    return {name: rows[slice(place, place + 1)] for name, rows in message.items()}
