"""What tests of silos that protect their samples share."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

from fedamp.federation.silo.privacy_account import Before, Promise
from fedamp.federation.silo.privacy_ledger import PrivacyLedger
from fedamp.privacy.account import epsilon
from fedamp.privacy.events import Event
from federation.inprocess import Local

MOST_PAUSES = 100

PROMISE = Promise(limit=None, delta=1e-5, clip=1.0, noise=1.5)
A_STEP = Counter({Event(0.1, 1.5): 1})


def protect(local: Local, *numbers: int, **promised) -> None:
    """Begin ledgers for these silos, and let them protect their samples."""
    for number in numbers:
        house = local.houses[number]
        PrivacyLedger(house.folder).begin(replace(PROMISE, **promised), Before(), A_STEP)
        local.houses[number] = replace(house, private=True)


def cost(local: Local, number: int, rounds: int) -> float:
    """Return the epsilon that a silo spends in so many rounds."""
    samples, config = local.houses[number].open(None).samples, local.plan.config
    steps = rounds * config.epochs * -(-samples // config.batch_size)
    return epsilon(Counter({Event(config.batch_size / samples, PROMISE.noise): steps}), PROMISE.delta)


def lose_patience(monkeypatch) -> None:
    """Let a federation that never goes on fail: one that needs a silo which refuses would wait for ever."""
    pauses, sleep = iter(range(MOST_PAUSES)), time.sleep

    def pause(seconds: float) -> None:
        assert next(pauses, None) is not None, "the federation does not go on"
        sleep(min(seconds, 0.05))

    monkeypatch.setattr("fedamp.federation.server.strategy.time.sleep", pause)
