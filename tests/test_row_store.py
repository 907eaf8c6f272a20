"""Where rows are kept: moved in pieces, in files without a name, and an error if there is no room."""

import errno
import os
from pathlib import Path

import pytest
import torch

from far_device import FAR, Far, far_device
from fedamp import row_store
from fedamp.errors import UserError
from fedamp.methods.attention import cosines, squared_distances
from fedamp.methods.attention.bias_variance import collaboration
from fedamp.row_store import CPU, DISK, HOST, RowStore, in_a_file, moved, use_store, write
from fedamp.rows import Rows, mix

MAPS = Path("/proc/self/maps")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Let stacks of a test be large: some pieces each, and worth a file."""
    monkeypatch.setattr(row_store, "PIECE", 12)
    monkeypatch.setattr(row_store, "SMALL", 0)


def test_rows_come_to_a_device_and_back_in_pieces():
    w, places = torch.randn(7, 5), torch.tensor([6, 0, 3, 3])
    with far_device():
        there = moved(w, FAR)
        some = moved(w, FAR, places)
        assert isinstance(there, Far)
        assert isinstance(some, Far)
        assert torch.equal(there.inner, w)
        assert torch.equal(some.inner, w[places])
        assert torch.equal(moved(w, FAR, slice(2, 6)).inner, w[2:6])
        stack = torch.zeros(7, 5)
        write(stack, moved(w, FAR, torch.tensor([5, 1, 2])), torch.tensor([5, 1, 2]))
        assert torch.equal(stack[[1, 2, 5]], w[[1, 2, 5]])
        assert not stack[[0, 3, 4, 6]].any()
        write(stack[:, 1:3], there[:, 1:3])
        assert torch.equal(stack[:, 1:3], w[:, 1:3])


@pytest.mark.parametrize("index", [None, slice(1, 4), torch.tensor([2, 0, 1])])
def test_one_row_that_stands_for_many_is_moved_once(index):
    row = torch.randn(1, 5)
    with far_device():
        there = moved(row.expand(6, -1), FAR, index)
        assert there.shape == (6 if index is None else 3, 5)
        assert there.stride(0) == 0
        assert torch.equal(there[-1:].cpu(), row)


def test_products_are_computed_on_the_device_and_kept_at_home(monkeypatch):
    """In blocks, and the same bit for bit."""
    monkeypatch.setattr("fedamp.rows.BLOCK", 20)
    w, weights = torch.randn(6, 23), torch.rand(4, 6, dtype=torch.float64)
    half, start, samples = w + torch.randn(6, 23) / 2, torch.randn(1, 23), torch.arange(1.0, 7.0)
    every = torch.full((6,), 0.3, dtype=torch.float64)

    def products():
        found = collaboration(w, half, start, samples, every)
        return [mix(weights, w), squared_distances(w), cosines(w, start[0]), found.xi, *found.by_client.values()]

    expected = products()
    with far_device(), use_store(RowStore(FAR, HOST)):
        seen = []
        monkeypatch.setattr(row_store, "_staging", lambda like: (seen.append(like.shape), torch.empty(like.shape))[1])
        found = products()
    assert seen, "blocks went to the device"
    assert all(each.device == CPU for each in found)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_a_far_tensor_does_not_meet_one_that_is_near():
    """Else the tests with a far device could not fail."""
    with far_device():
        there, here = torch.ones(2, 2).to(FAR), torch.ones(2, 2)
        for wrong in (lambda: there + here, lambda: here @ there, lambda: here[there.long()]):
            with pytest.raises(RuntimeError, match="two"):
                wrong()
        assert torch.equal((there + 1).cpu(), here + 1)


def test_files_have_no_name_and_end_with_their_tensor(tmp_path):
    def files():
        return [line for line in MAPS.read_text().splitlines() if str(tmp_path) in line]

    values = torch.randn(50, 40)
    stack = in_a_file((50, 40), torch.float32, tmp_path).copy_(values)
    assert torch.equal(stack, values)
    assert torch.equal(Rows.of(stack)[slice(3, 9)].params, values[3:9])
    assert not list(tmp_path.iterdir())
    if MAPS.exists():
        assert len(files()) == 1
        del stack
        assert not files()


def test_a_stack_on_disk_makes_stacks_on_disk(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(row_store, "in_a_file", lambda *form: (made.append(form), in_a_file(*form))[1])
    w, some = Rows.of(torch.randn(5, 8)), torch.tensor([0, 3])
    with use_store(RowStore(CPU, DISK, tmp_path)):
        found = [w.mix(torch.rand(3, 5)), w.put(some, w[torch.tensor([1, 2])]), w[some]]
    assert [shape for shape, _, _ in made if shape[1]] == [(3, 8), (2, 8), (5, 8), (2, 8)]
    assert torch.equal(found[2].params, w.params[some])
    made.clear()
    w.put(some, w[some])
    assert not made, "outside, they are where they always were"


def test_no_room_is_one_line_with_a_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(row_store, "free_memory", lambda device: 1000)
    with pytest.raises(UserError, match=r"rows of 40 clients take .* more on the host, .*--rows disk"):
        RowStore(CPU, HOST).empty((40, 100), torch.float32)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(UserError, match=r"on the disk of .* \(No space left on device\); choose a folder"):
        RowStore(CPU, DISK, tmp_path).empty((40, 100), torch.float32)
    with pytest.raises(UserError, match="No such file"):
        RowStore(CPU, DISK, tmp_path / "nowhere").empty((40, 100), torch.float32)
