"""Clients in parts: what does not fit is halved, nothing is lost, and the run says so."""

import pytest
import torch

import fedamp
from fedamp.methods.base import descent
from fedamp.models.flat_model import FlatModel
from fedamp.rows import State
from fedamp.training import stacked_or_loop
from fedamp.training.batches import Batching
from fedamp.training.stacked.chunks import ALL_AT_ONCE, Chunks
from helpers import Federation, data, mlp


def test_every_client_is_taken_once():
    taken, tried = [], []

    def work(part: slice) -> None:
        tried.append(part.stop - part.start)
        if part.stop - part.start > 3:
            raise torch.OutOfMemoryError
        taken.extend(range(part.start, part.stop))

    freed = []
    chunks = Chunks()
    events = chunks.over(11, work, lambda: freed.append(True))
    assert taken == list(range(11))
    assert tried == [11, 5, 2, 2, 2, 2, 2, 1]
    assert (chunks.size, len(events), len(freed)) == (2, 2, 2)
    assert "5 clients at once did not fit" in events[1]
    assert "from now on they are taken 2 at a time" in events[1]
    assert chunks.over(11, work, lambda: None) == []


def test_one_client_that_does_not_fit_is_an_error_with_a_cure():
    def work(part: slice) -> None:
        raise torch.OutOfMemoryError

    with pytest.raises(ValueError, match="one client's training alone does not fit"):
        Chunks().over(4, work, lambda: None)


def small_memory(monkeypatch, most: int) -> None:
    """Let passes of more than `most` clients run out of memory."""
    stacked = FlatModel.stacked

    def limited(self, params, *rest, **named):
        if len(params) > most:
            raise torch.OutOfMemoryError("out of memory")
        return stacked(self, params, *rest, **named)

    monkeypatch.setattr(FlatModel, "stacked", limited)


@pytest.mark.parametrize("name", ["fedamp", "scaffold", "apfl"])
def test_training_survives_and_gives_the_same_numbers(name, monkeypatch):
    settings = {"module": mlp(norm=True), "clients": data((5, 9, 13, 4, 20, 9)), "batching": Batching(4, epochs=2)}
    loop = Federation.of(name, **settings).play(3)
    small_memory(monkeypatch, 2)
    stacked = Federation.of(name, **settings)
    stacked.trainer = stacked.trainer.changed(engine="stacked", chunk=ALL_AT_ONCE)
    stacked.play(3)
    assert stacked.trainer.chunks.size == 1
    assert len(stacked.trainer.take_events()) == 2
    torch.testing.assert_close(stacked.models(), loop.models(), rtol=1e-9, atol=1e-9)


def test_a_run_says_so_and_goes_on(monkeypatch, tmp_path):
    settings = {"data": "digits", "clients": 6, "rounds": 2, "epochs": 1, "engine": "stacked", "seed": 3}
    whole = fedamp.run(**settings)
    small_memory(monkeypatch, 4)
    result = fedamp.run(**settings, out=tmp_path / "run")
    assert any("6 clients at once did not fit" in warning for warning in result.warnings)
    # It happens first when round 0 is scored, and is reported with the first round that is played.
    assert [len(line["events"]) > 0 for line in result.history] == [False, True, False, False]
    torch.testing.assert_close(result.models["own"].params, whole.models["own"].params, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_out_of_memory():
    g = torch.Generator().manual_seed(0)
    pairs = [(torch.rand(40, 28, 28, generator=g), torch.randint(10, (40,), generator=g)) for _ in range(40)]
    settings = {"clients": pairs, "rounds": 1, "epochs": 1, "model": "cnn", "engine": "stacked"}
    # Plain SGD: Adam would make steps of the rounding errors by which convolutions of other group sizes differ.
    settings |= {"precision": "fp32", "optimizer": "sgd"}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    whole = fedamp.run(**settings, deterministic=True)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    # A sixth less than it took: the states of 40 clients fit, but not all of their gradients.
    torch.cuda.set_per_process_memory_fraction(torch.cuda.max_memory_reserved() * 5 / 6 / total)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stacked_or_loop, "MEMORY_SHARE", 1000.0)
            result = fedamp.run(**settings, deterministic=True)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert any("did not fit into the device's memory" in warning for warning in result.warnings)
    torch.testing.assert_close(result.models["own"].params, whole.models["own"].params, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("size", [1, 2, 10])
def test_training_does_not_write_to_what_it_is_given(size):
    a = Federation.of("fedavg", sizes=(6, 7, 8))
    trainer = a.trainer.changed(engine="stacked", chunk=size)
    first = a.trainer.model.row()
    before = first.params.clone()
    ended = trainer.local(a.clients, 1).run(first.repeat(3), descent)
    assert torch.equal(first.params, before)
    assert not torch.equal(ended.params[0], ended.params[1])


def test_a_round_of_everyone_copies_no_state(monkeypatch):
    a = Federation.of("scaffold", sizes=(6, 7, 8))
    monkeypatch.setattr(State, "take", None)
    monkeypatch.setattr(State, "put", None)
    a.play(2)
