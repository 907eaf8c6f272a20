"""What tests of silos that protect their samples share."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fedamp.federation.silo.privacy_account import Before, Promise
from fedamp.federation.silo.privacy_ledger import PrivacyLedger
from fedamp.privacy.events import Event
from federation.inprocess import Local

PROMISE = Promise(limit=None, delta=1e-5, clip=1.0, noise=1.5)
A_STEP = Counter({Event(0.1, 1.5): 1})


def protect(local: Local, *numbers: int, **promised) -> None:
    """Begin ledgers for these silos, and let them protect their samples."""
    for number in numbers:
        house = local.houses[number]
        PrivacyLedger(house.folder).begin(replace(PROMISE, **promised), Before(), A_STEP)
        local.houses[number] = replace(house, private=True)
