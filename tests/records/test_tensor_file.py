"""Files of tensors: the format of the library that reads them, no copies, and nothing left behind."""

import os
import stat

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save

from fedamp.records.tensor_file import KINDS, write_tensors


@pytest.mark.parametrize("dtype", KINDS)
def test_the_file_is_the_librarys_to_the_last_byte(tmp_path, dtype):
    tensors = {
        "ö b": torch.arange(6).reshape(2, 3).to(dtype),
        "a": torch.ones(5).to(dtype),
        "of none": torch.empty(0, 4),
    }
    tensors["of none"] = tensors["of none"].to(dtype)
    write_tensors(tmp_path / "file", tensors, {"fedamp": '{"k": 1}'})
    assert (tmp_path / "file").read_bytes() == save(tensors, {"fedamp": '{"k": 1}'})


def test_nor_do_several_kinds_differ(tmp_path):
    tensors = {"a": torch.ones(3, dtype=torch.bool), "b": torch.ones(2), "c": torch.ones(2, dtype=torch.float64)}
    write_tensors(tmp_path / "file", tensors)
    assert (tmp_path / "file").read_bytes() == save(tensors)


def test_all_kinds_in_one_file_are_read_again(tmp_path):
    tensors = {f"{dtype}": (torch.arange(3) % 2).to(dtype) for dtype in KINDS} | {"one": torch.tensor(2.5)}
    write_tensors(tmp_path / "file", tensors)
    found = load_file(tmp_path / "file")
    assert {name: (each.dtype, each.tolist()) for name, each in found.items()} == {
        name: (each.dtype, each.tolist()) for name, each in tensors.items()
    }
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() is None


def test_tensors_that_share_memory_are_all_there(tmp_path):
    whole = torch.arange(6.0).reshape(2, 3)
    write_tensors(tmp_path / "file", {"whole": whole, "again": whole, "row": whole[1], "turned": whole.T})
    found = {name: each.tolist() for name, each in load_file(tmp_path / "file").items()}
    rows = whole.tolist()
    assert found == {"whole": rows, "again": rows, "row": rows[1], "turned": whole.T.tolist()}


def test_no_other_file_is_made_on_the_way(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "replace", lambda source, target: seen.append(sorted(map(str, os.listdir(tmp_path)))))
    write_tensors(tmp_path / "file", {"a": torch.ones(3)})
    assert seen == [[".file.part"]]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_whoever_may_read_a_new_file_may_read_these(tmp_path, mask):
    before = os.umask(mask)
    try:
        (tmp_path / "other").touch()
        write_tensors(tmp_path / "file", {"a": torch.arange(3.0)})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_one_row_that_stands_for_many_is_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("fedamp.records.tensor_file.PART", 6)
    rows = {"shared": torch.randn(1, 5).expand(7, -1), "turned": torch.randn(3, 4).T, "none": torch.empty(4, 0).T}
    write_tensors(tmp_path / "file", rows)
    found = load_file(tmp_path / "file")
    assert all(torch.equal(found[name], rows[name]) for name in rows)
