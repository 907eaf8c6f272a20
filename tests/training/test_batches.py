"""Which samples make up each step."""

import pytest
import torch

from fedamp import seeds
from fedamp.training.batches import Batching


@pytest.mark.parametrize(
    ("size", "batch_size", "lengths"),
    [(8, 4, [4, 4]), (9, 4, [4, 5]), (10, 4, [4, 4, 2]), (3, 4, [3]), (1, 4, [1]), (5, 4, [5]), (3, 1, [1, 1, 1])],
)
def test_batches_of_a_pass(size, batch_size, lengths):
    drawn = Batching(batch_size, epochs=1).draw(size, seeds.generator(0, "test"))
    assert [len(batch) for batch in drawn] == lengths
    assert sorted(torch.cat(drawn).tolist()) == list(range(size))


def test_epochs_and_steps():
    assert Batching(4, epochs=3).num_steps(10) == 9
    assert Batching(4, steps=7).num_steps(10) == 7
    drawn = Batching(4, steps=7).draw(10, seeds.generator(0, "test"))
    assert [len(batch) for batch in drawn] == [4, 4, 2, 4, 4, 2, 4]
    first, second = torch.cat(drawn[:3]), torch.cat(drawn[3:6])
    assert first.tolist() != second.tolist(), "every pass shuffles anew"


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"batch_size": 0, "epochs": 1}, "batch_size is 0"),
        ({"epochs": 1, "steps": 1}, "exactly one"),
        ({}, "exactly one"),
        ({"epochs": 0}, "epochs is 0"),
        ({"steps": 1.5}, "steps is 1.5"),
    ],
)
def test_bad_batching(wrong, word):
    with pytest.raises(ValueError, match=word):
        Batching(**wrong)


@pytest.mark.parametrize("batching", [Batching(4, epochs=3), Batching(4, steps=5), Batching(3, epochs=1)], ids=str)
@pytest.mark.parametrize("size", [1, 3, 4, 5, 9, 13])
def test_a_table_of_batches_holds_the_batches(batching, size):
    table, lengths = batching.table(size, seeds.generator(0, "batches", 1, 2))
    drawn = batching.draw(size, seeds.generator(0, "batches", 1, 2))
    assert lengths == [len(batch) for batch in drawn]
    for row, batch in zip(table, drawn, strict=True):
        assert row[: len(batch)].tolist() == batch.tolist()
