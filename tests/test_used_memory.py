"""Large stacks take the memory of those that are gone, and never that of one that somebody still holds."""

import pytest
import torch

import fedamp
from fedamp import used_memory
from fedamp.used_memory import empty_stack, used_again
from helpers import SOME_AT_ONCE, Federation

LIKE = torch.zeros(1)


@pytest.fixture
def small(monkeypatch):
    """Let every stack count as a large one, and let what comes back be no number any more."""

    def back(freed, memory):
        memory.fill_(255)
        keep(freed, memory)

    keep = used_memory._Freed.back
    monkeypatch.setattr(used_memory._Freed, "back", back)
    monkeypatch.setattr(used_memory, "LARGE", 1)


def test_memory_comes_back_when_nothing_refers_to_it(small):
    with used_again():
        stack = empty_stack((3, 4), LIKE)
        place, row = stack.data_ptr(), stack.fill_(1.0)[1:]
        del stack
        other = empty_stack((3, 4), LIKE)
        assert other.data_ptr() != place
        assert row.tolist() == [[1.0] * 4] * 2
        del row
        again = empty_stack((4, 3), LIKE)
        assert again.data_ptr() == place
        assert (again.shape, again.dtype, again.isnan().all()) == ((4, 3), torch.float32, True)


def test_what_does_not_fit_is_given_back_before_more_is_taken(small):
    with used_again():
        first, second = (empty_stack((3, 4), LIKE) for _ in range(2))
        del first, second
        freed = used_memory._FREED.get()
        assert len(freed.held) == 2
        stack = empty_stack((3, 4), LIKE)
        assert len(freed.held) == 1
        larger = empty_stack((5, 4), LIKE)
        assert not freed.held
        assert (stack.shape, larger.shape) == ((3, 4), (5, 4))


def test_afterwards_nothing_is_kept(small):
    with used_again():
        gone, stays = (empty_stack((3, 4), LIKE.double()).fill_(2.0) for _ in range(2))
        freed = used_memory._FREED.get()
        del gone
        assert freed.held
    assert not freed.held
    assert stays.sum() == 24
    del stays
    assert not freed.held
    assert empty_stack((3, 4), LIKE).shape == (3, 4)


def test_small_stacks_are_left_to_the_c_library():
    with used_again():
        empty_stack((3, 4), LIKE)
        assert not used_memory._FREED.get().held


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("name", SOME_AT_ONCE)
def test_every_method_gives_the_same_bits(name, engine, small):
    away = torch.tensor([True, True, False, True])

    def played() -> Federation:
        federation = Federation.of(name)
        federation.trainer = federation.trainer.changed(engine=engine)
        for present in (None, away, None, None):
            federation.play(present=present)
        return federation

    plain = played()
    with used_again():
        again = played()
    assert torch.equal(again.models(), plain.models())
    for entry, rows in plain.state.rows.items():
        assert torch.equal(again.state.rows[entry].params, rows.params)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_run_takes_no_new_memory_after_its_second_round(engine, small, monkeypatch):
    new, take = [], used_memory._Freed.take

    def watched(freed, size):
        new[-1] += not any(len(memory) == size for memory in freed.held)
        return take(freed, size)

    def began(line) -> bool:
        new.append(0)
        return True

    monkeypatch.setattr(used_memory._Freed, "take", watched)
    new.append(0)
    settings = {"data": "digits", "clients": 5, "model": "logistic", "rounds": 5, "epochs": 1, "engine": engine}
    result = fedamp.run(method="fedamp", observer=began, **settings)
    assert new[0] > 0
    assert new[3:5] == [0, 0]
    assert all(rows.finite().all() for rows in result.models.values())
