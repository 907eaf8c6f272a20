"""What is held out for anyone is in nobody's training set, though clients may share samples."""

import torch

from fedamp.config import RunConfig
from fedamp.data.clients import Clients
from fedamp.runs.material import load_material

SHARING = {
    "data": "digits",
    "clients": 20,
    "setting": {"name": "iid", "samples": 200, "share_samples": True, "test_samples": 20},
}


def leaked(clients: Clients) -> int:
    """Return how many validation samples are somebody's training samples: same picture, whatever its label."""
    seen = {bytes(clients.x[p].numpy().tobytes()) for positions in clients.train for p in positions}
    held = {p for positions in clients.validation for p in positions.tolist()}
    return sum(bytes(clients.x[p].numpy().tobytes()) in seen for p in held)


def test_a_held_out_sample_is_nobodys_training_sample():
    clients = load_material(RunConfig.of(SHARING)).clients
    assert len(torch.cat(clients.train).unique()) < len(torch.cat(clients.train)), "nobody shares anything here"
    assert leaked(clients.hold_out(0.2, seed=3)) == 0


def test_nor_is_a_copy_of_it_with_a_wrong_label():
    clients = load_material(RunConfig.of(SHARING)).clients
    assert leaked(clients.with_label_noise(0.5, 10, seed=1).hold_out(0.2, seed=3)) == 0


def test_what_is_held_out_does_not_depend_on_who_shares():
    clients = load_material(RunConfig.of(SHARING)).clients
    held = clients.hold_out(0.2, seed=3).validation
    for mine, client in zip(held, range(20), strict=True):
        alone = clients.take(torch.tensor([client])).hold_out(0.2, seed=3).validation[0]
        assert torch.equal(mine, alone)


def test_where_nobody_shares_every_sample_is_in_one_place():
    apart = {**SHARING, "setting": {"name": "iid", "samples": 50, "test_samples": 20}}
    before = load_material(RunConfig.of(apart)).clients
    after = before.hold_out(0.2, seed=3)
    for whole, train, held in zip(before.train, after.train, after.validation, strict=True):
        assert torch.equal(torch.cat([train, held]).sort().values, whole)
        assert len(held) == 10
