"""Switches of the process are set inside a block, and set back after it."""

import pytest
import torch

from fedamp.training.torch_switches import keep_freed_memory, use_deterministic, use_threads


def test_threads_are_given_back_even_after_an_error():
    before = torch.get_num_threads()

    def fail(threads: int) -> None:
        with use_threads(threads):
            assert torch.get_num_threads() == threads
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail(before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("wanted", [True, False])
def test_deterministic_algorithms_where_they_are_wanted(wanted):
    with use_deterministic(wanted):
        assert torch.are_deterministic_algorithms_enabled() == wanted
    assert not torch.are_deterministic_algorithms_enabled()


def test_keeping_memory_is_never_an_error(monkeypatch):
    keep_freed_memory()
    monkeypatch.setattr("ctypes.CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    keep_freed_memory()
