"""Training on a part of a client's samples, and the loss of given rows without training."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedamp.methods.base import descent
from fedamp.rows import Rows
from fedamp.training.local import SPLIT
from helpers import Federation, data, mlp

SIZES = (5, 9, 2, 1, 20)


def halves(number: float) -> torch.Tensor:
    return torch.full((len(SIZES), 1), number)


def federation(engine: str = "loop") -> Federation:
    made = Federation.of("separate", clients=data(SIZES), module=mlp())
    made.trainer = made.trainer.changed(engine=engine)
    return made


def test_two_halves_are_all_samples_once_and_no_half_is_empty():
    a = federation()
    local = a.local_for(torch.arange(5))
    one, two = (local.part(halves(number)).clients.train for number in (1, 2))
    for whole, first, second in zip(local.clients.train, one, two, strict=True):
        assert len(first) > 0
        assert len(second) > 0
        if len(whole) < SPLIT:
            assert first.tolist() == second.tolist() == whole.tolist()
        else:
            assert len(first) >= 2
            assert sorted([*first.tolist(), *second.tolist()]) == sorted(whole.tolist())
            assert abs(len(first) - len(second)) <= 1


def test_the_split_is_the_same_in_all_rounds_and_in_a_silo():
    a = federation()
    a.k = 1
    first = a.local_for(torch.arange(5)).part(halves(1)).clients.train
    a.k = 7
    later = a.local_for(torch.arange(5)).part(halves(1)).clients.train
    alone = a.local_for(torch.tensor([4])).part(torch.ones(1, 1)).clients.train
    assert all(torch.equal(*pair) for pair in zip(first, later, strict=True))
    assert torch.equal(first[4], alone[0])


def test_a_part_is_training_on_these_samples_alone():
    a = federation()
    half = a.local_for(torch.arange(5)).part(halves(2))
    start = a.trainer.model.row().repeat(5)
    by_part = half.run(start, descent)
    again = a.trainer.local(half.clients, half.k).run(start, descent)
    assert torch.equal(by_part.params, again.params)


@pytest.mark.parametrize("which", [[0, 1, 2, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
def test_all_at_once_is_one_by_one(which):
    """Some train on all of their samples while others train on a half."""
    half = torch.tensor(which, dtype=torch.float64)[:, None]
    found, losses = [], []
    for engine in ("loop", "stacked"):
        a = federation(engine)
        local = a.local_for(torch.arange(5))
        found.append(local.part(half).run(a.trainer.model.row().repeat(5), descent).params)
        losses.append(local.losses[""])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(losses[0].double(), losses[1].double(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_the_loss_of_rows_is_the_mean_over_all_training_samples(engine):
    a = federation(engine)
    rows = a.trainer.model.row().repeat(5)
    rows = Rows(rows.params + torch.linspace(0, 1, 5, dtype=torch.float64)[:, None], rows.buffers)
    found = a.local_for(torch.arange(5)).loss(rows)
    for i, positions in enumerate(a.clients.train):
        output, _ = a.trainer.model(rows.params[i], rows.buffers[i], a.clients.x[positions], training=False)
        assert found[i].item() == pytest.approx(cross_entropy(output, a.clients.y[positions]).item(), abs=1e-12)
    assert found.shape == (5, 1)
