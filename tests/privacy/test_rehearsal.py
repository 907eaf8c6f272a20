"""A rehearsal says exactly what a run then spends: counted by hand, and beside real private rounds of every method."""

import math
from collections import Counter

import pytest
import torch

from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.methods import make_method
from fedamp.methods.alone_beside import AloneBeside
from fedamp.privacy.events import Event
from fedamp.privacy.promise import Privacy
from fedamp.privacy.rehearsal import rehearse
from fedamp.runs.round import play_round
from fedamp.runs.setup import assemble
from fedamp.runs.simulated_faults import draw_present
from helpers import SOME_AT_ONCE

SIZES = (40, 25, 7, 3)  # the last two have fewer samples than a minibatch, and the last one too few for a split
BATCH = 10


def federation(method, init="common", **settings):
    """Return clients of several sizes, their first models, and a training with a noise of 1."""
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randn((sum(SIZES), 5), generator=draws), torch.arange(sum(SIZES)) % 3
    train = tuple(torch.arange(sum(SIZES)).split(list(SIZES)))
    config = RunConfig(
        data="given", clients=4, model="mlp", method=method, batch_size=BATCH, epochs=2, init=init, engine="loop"
    )
    setup = assemble(config, Clients(x, y, train, (0, 1, 2, 3), train), method=make_method(method, **settings))
    return setup, setup.trainer.changed(privacy=Privacy(1.0, dict.fromkeys(setup.clients.numbers, 1.0)))


def planned(method, rounds, init="common", present=None, wrap=lambda method: method, **settings):
    setup, trainer = federation(method, init, **settings)
    return rehearse(
        wrap(setup.method), setup.w, rounds, lambda who, k: trainer.local(setup.clients.take(who), k), present
    )


def spent(method, rounds, init="common", present=None, **settings):
    """Return what real rounds spend."""
    setup, trainer = federation(method, init, **settings)
    server, clients = setup.method.server_init(setup.w), setup.method.client_init(setup.w)
    found = [Counter() for _ in SIZES]
    for k in range(1, rounds + 1):
        here = torch.ones(4, dtype=torch.bool) if present is None else present(k)

        def local_for(who, k=k):
            return trainer.local(setup.clients.take(who), k)

        played = play_round(setup.method, server, clients, k, local_for, here)
        server, clients = played.server, played.clients
        found = [mine + more for mine, more in zip(found, played.spent, strict=True)]
    return found


@pytest.mark.parametrize("method", SOME_AT_ONCE)
def test_every_method_spends_what_its_rehearsal_said(method):
    assert planned(method, 3) == spent(method, 3)


@pytest.mark.parametrize("method", ["autoamp", "fedala", "ifca", "separate"])
@pytest.mark.parametrize("init", ["common", "own"])
def test_with_absent_clients_and_first_models_of_their_own(method, init):
    def present(k):
        return draw_present(5, k, 4, 0.5)

    plan = planned(method, 4, init, present)
    assert plan == spent(method, 4, init, present)
    assert plan != planned(method, 4, init)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("per-fedavg", {"form": "hessian-free"}), ("ditto", {"personal_epochs": 3}), ("pfedme", {"inner_steps": 2})],
)
def test_hyperparameters_count_too(method, settings):
    assert planned(method, 2, **settings) == spent(method, 2, **settings) != planned(method, 2)


STEPS = 2 * 4  # of the first client in a round: 2 epochs of 40 samples in minibatches of 10
Q = 10 / 40
HALF, KEPT, HELD = 10 / 20, 10 / 32, 1.0  # of a half of its samples; of 80 % and of the 20 % held out, which are 8
BY_HAND = {
    "separate": {(Q, 1.0): 3 * STEPS},
    "scaffold": {(Q, 1.0): 3 * STEPS},  # controls are made of models: no further gradient
    "apfl": {(Q, 1 / math.sqrt(2)): 3 * STEPS},  # two gradients of one minibatch
    "pfedme": {(Q, 1 / math.sqrt(5)): 3 * STEPS},
    "ditto": {(Q, 1.0): 3 * 2 * STEPS},  # two passes, each with its own minibatches
    "fedrep": {(Q, 1.0): 3 * 2 * 4},  # one epoch for the head, one for the body
    "per-fedavg": {(Q, 1.0): 3 * (STEPS + 4)},  # halves of a minibatch; an epoch of adaptation
    "autoamp": {(HALF, 1.0): 2 * 2 * 2, (Q, 1.0): 1 * STEPS},  # two probes and a round; a loss is not asked for
    "ifca": {(Q, 1.0): 3 * (STEPS + 4 * 4)},  # the losses of four models
    "fedfomo": {(HELD, 1.0): 3 * 6, (KEPT, 1.0): 3 * 2 * 4},  # six losses on 8 samples; 32 to train on
    # The weights on 80 %: one pass in the first round, 11 when models differ for the first time, and one again.
    "fedala": {(KEPT, 1.0): (1 + 11 + 1) * 4, (Q, 1.0): 3 * STEPS},
}


@pytest.mark.parametrize("method", BY_HAND)
def test_counted_by_hand(method):
    """Of the first client, in three rounds."""
    assert planned(method, 3)[0] == {Event(*event): count for event, count in BY_HAND[method].items()}


def test_small_clients_take_all_of_their_samples():
    plan = planned("separate", 3)
    assert plan[1] == {Event(10 / 25, 1.0): 3 * 2 * 3}
    assert plan[2] == plan[3] == {Event(1.0, 1.0): 3 * 2}


def test_what_stays_at_home_spends_nothing():
    assert planned("fedamp", 3, wrap=AloneBeside) == planned("fedamp", 3)


def test_no_round_spends_nothing():
    assert planned("autoamp", 0) == [Counter()] * 4
