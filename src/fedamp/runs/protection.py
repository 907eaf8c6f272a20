"""How the samples of a run's clients are protected: the noise of each client, and what is written down of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.methods import Method
from fedamp.methods.wrapped import Wrapped
from fedamp.privacy import account
from fedamp.privacy.events import Spending
from fedamp.privacy.promise import Privacy
from fedamp.privacy.rehearsal import rehearse
from fedamp.privacy.sampling import rate
from fedamp.records.client_names import client_name
from fedamp.records.privacy import Promised
from fedamp.rows import Rows
from fedamp.training.trainer import Trainer

NAMED = 5
"""Clients that a warning names."""


@dataclass(frozen=True)
class Protection:
    """How samples are protected, what is written down of it, and what the user should know."""

    privacy: Privacy
    promised: Promised
    warnings: tuple[str, ...]


def protection(
    config: RunConfig,
    method: Method,
    trainer: Trainer,
    clients: Clients,
    w: Rows,
    names: Sequence[str] | None = None,
    present: Callable[[int], Tensor] | None = None,
) -> Protection | None:
    """Return how a run protects its clients' samples; None if it does not.

    With `dp_epsilon` each client has the least noise with which all rounds spend no more. `present` says who takes part
    in round k.
    """
    if not config.private:
        return None
    if config.dp_epsilon is not None:
        account.check_available(f"dp_epsilon is {config.dp_epsilon:g}, and noise for it has to be found")
        plan = planned(config, method, trainer, clients, w, present)
        noise = [account.calibrate(each, config.dp_epsilon, config.dp_delta) for each in plan]
    else:
        noise = [config.dp_noise or 0.0] * len(clients)
    promised = Promised(
        clip=config.dp_clip,
        delta=config.dp_delta,
        epsilon=config.dp_epsilon,
        noise=noise,
        rates=[rate(config.batch_size, len(train)) for train in clients.train],
        relation=account.RELATION,
        sampling="poisson",
        accountant=account.name() if account.available() else None,
    )
    privacy = Privacy(config.dp_clip, dict(zip(clients.numbers, noise, strict=True)))
    return Protection(privacy, promised, tuple(warnings_about(promised, clients, names)))


def planned(
    config: RunConfig,
    method: Method,
    trainer: Trainer,
    clients: Clients,
    w: Rows,
    present: Callable[[int], Tensor] | None = None,
) -> list[Spending]:
    """Return what each client will spend in all rounds, at a noise of 1."""
    private = trainer.changed(privacy=Privacy(config.dp_clip, dict.fromkeys(clients.numbers, 1.0)))
    while isinstance(method, Wrapped):  # what is trained beside it stays at home; a newcomer spends as all others do
        method = method.method
    return rehearse(method, w, config.rounds, lambda who, k: private.local(clients.take(who), k), present)


def warnings_about(promised: Promised, clients: Clients, names: Sequence[str] | None) -> list[str]:
    """Return what the user should know: delta too large, noise too large or next to none, a library that is missing."""
    found, sizes = [], [len(train) for train in clients.train]
    if many := [i for i, size in enumerate(sizes) if promised.delta * size >= 1]:
        found.append(
            f"dp_delta is {promised.delta:g}, and {_who(many, names)} {_has(many)} up to {max(sizes)} samples: with a "
            "chance of 1 / samples or more, giving away a whole sample would be within the promise. Give a --dp-delta "
            f"well below {1 / max(sizes):.2g}"
        )
    batches = [chance * size for chance, size in zip(promised.rates, sizes, strict=True)]
    if drowned := [i for i, z in enumerate(promised.noise) if z > batches[i]]:
        worst = max(drowned, key=lambda i: promised.noise[i] / batches[i])
        found.append(
            f"noise drowns what {_who(drowned, names)} could learn: it is up to {promised.noise[worst]:.3g} times as "
            f"long as the gradient of one sample, and a minibatch has {batches[worst]:.3g}. Larger minibatches "
            "(--batch-size), more samples, fewer rounds or a larger --dp-epsilon leave more of it"
        )
    if least := [i for i, z in enumerate(promised.noise) if 0 < z < account.LEAST]:
        found.append(
            f"noise of {promised.noise[least[0]]:g} times the clip protects nobody: epsilon is infinite. Give a "
            f"--dp-noise of {account.LEAST:g} at the very least, better 1 or more, or a --dp-epsilon"
        )
    if promised.accountant is None:
        found.append(f"epsilon is not known, since {account.LIBRARY} is not installed: {account.INSTALL}")
    return found


def _who(some: Sequence[int], names: Sequence[str] | None) -> str:
    listed = ", ".join(client_name(i, names) for i in some[:NAMED])
    return listed if len(some) <= NAMED else f"{listed} and {len(some) - NAMED} more"


def _has(some: Sequence[int]) -> str:
    return "has" if len(some) == 1 else "have"
