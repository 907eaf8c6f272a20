"""A run to scale: some of its clients, two rounds, a step or two; for what it costs, not for what it learns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch

from fedamp import rows
from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.methods import Method
from fedamp.methods.alone_beside import AloneBeside
from fedamp.runs.loop import play
from fedamp.runs.parts import method_of
from fedamp.runs.result import Result
from fedamp.runs.setup import Setup
from fedamp.runs.shard import ONE_PROCESS
from fedamp.training import torch_switches
from fedamp.training.batches import Batching

ROUNDS, STEPS = 2, 2
"""In the second round the states of the first are still there. Two steps: moments and a second pass."""


def play_miniature(config: RunConfig, setup: Setup, num_clients: int) -> Result:
    """Play the rounds of some clients, with all bounds on memory in proportion: chunks of clients, blocks of columns.

    So all that grows with the number of clients is num_clients / m of what it would be, and the rest is as large.
    """
    some = _spread(setup.clients, num_clients)
    clients, share = setup.clients.take(some), num_clients / len(setup.clients)
    chunk = setup.trainer.chunks.size
    small = replace(
        setup,
        clients=clients,
        w=setup.w[some.to(setup.w.params.device)],
        method=_method(config, setup.method, clients),
        trainer=setup.trainer.changed(
            batching=Batching(config.batch_size, steps=STEPS),
            chunk=chunk if chunk >= len(setup.clients) else max(1, round(share * chunk)),
        ),
        facts=replace(setup.facts, names=None),
        tamper=lambda reply, who: reply,
        shard=ONE_PROCESS,
        newcomers=(),  # they come one at a time, when the others have trained: that takes less
    )
    # Nobody is poisoned or absent: both take less memory, or as much.
    asked = replace(
        config,
        clients=num_clients,
        rounds=min(config.rounds, ROUNDS),
        then_alone=min(config.then_alone, 1),
        replies="checked" if config.checks_replies else "any",
        poisoned=(),
        attack=RunConfig.attack,
        noisy_clients=None,
        absent=0.0,
    )
    with _bounds(share):
        return play(asked, small)


def _spread(clients: Clients, count: int) -> torch.Tensor:
    """Return the positions of so many clients, from the one with the fewest samples to the one with the most."""
    by_size = sorted(range(len(clients)), key=lambda i: len(clients.train[i]))
    places = torch.linspace(0, len(by_size) - 1, count).round().long().tolist()
    return torch.tensor([by_size[place] for place in places] if count > 1 else by_size[-1:])


def _method(config: RunConfig, method: Method, clients: Clients) -> Method:
    """Return the method for fewer clients: an oracle's weights depend on who is there."""
    if config.method.parameters.get("self_weight") != "oracle":
        return method
    fewer = method_of(config, clients.groups)
    return AloneBeside(fewer) if isinstance(method, AloneBeside) else fewer


@contextlib.contextmanager
def _bounds(share: float) -> Iterator[None]:
    """Let all that is bounded, however many clients there are, be bounded by this share of the usual."""
    places = [(rows, "BLOCK"), (torch_switches, "KEPT"), (torch_switches, "IN_PLACE")]
    usual = [getattr(module, name) for module, name in places]
    for (module, name), value in zip(places, usual, strict=True):
        setattr(module, name, max(1, int(share * value)))
    try:
        yield
    finally:
        for (module, name), value in zip(places, usual, strict=True):
            setattr(module, name, value)
