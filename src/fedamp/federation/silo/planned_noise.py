"""How much noise a silo needs for the rounds that it plans: its method is rehearsed, without any training."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from fedamp.federation.silo.round import Silo
from fedamp.methods.wrapped import Wrapped
from fedamp.privacy import account
from fedamp.privacy.events import Spending
from fedamp.privacy.promise import Privacy
from fedamp.privacy.rehearsal import rehearse
from fedamp.privacy.sampling import rate
from fedamp.records.privacy import Promised
from fedamp.runs.protection import warnings_about
from fedamp.training.local import LocalTraining

MOST = 20
"""Silos in a rehearsal, at most; some methods score each other's models, but few of them."""


def planned(silo: Silo, rounds: int) -> Spending:
    """Return what the silo will spend in so many rounds, at a noise of 1.

    It plays with copies of itself: how many samples the others have does not change what this one spends.
    """
    setup, method = silo.setup, silo.setup.method
    while isinstance(method, Wrapped):  # what is trained beside it stays at home
        method = method.method
    m = max(2, min(silo.config.plan.config.clients, MOST))
    copies = replace(setup.clients, train=m * setup.clients.train, numbers=tuple(range(m)), test=(), validation=())
    private = setup.trainer.changed(privacy=Privacy(1.0, dict.fromkeys(range(m), 1.0)))

    def training(who: Tensor, k: int) -> LocalTraining:
        return private.local(copies.take(who), k)

    return rehearse(method, setup.w.repeat(m), rounds, training)[0]


def noise_for(plan: Spending, epsilon: float, delta: float) -> float:
    """Return the least noise with which a plan spends at most epsilon."""
    account.check_available(f"--dp-epsilon is {epsilon:g}, and noise for it has to be found")
    return account.calibrate(plan, epsilon, delta)


def advice(silo: Silo, delta: float, clip: float, noise: float) -> list[str]:
    """Return what its operator should know about a promise: a delta that is too large, noise that drowns all."""
    clients, batch_size = silo.setup.clients, silo.config.plan.config.batch_size
    rates = [rate(batch_size, len(train)) for train in clients.train]
    promised = Promised(clip, delta, None, [noise], rates, account.RELATION, "poisson", account.LIBRARY)
    return warnings_about(promised, clients, [silo.config.name])
