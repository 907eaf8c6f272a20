"""Files of tensors: read by whom all of a run's files are read by, and whole."""

import os
import stat

import pytest
import torch
from safetensors.torch import load_file

from fedamp.records.tensor_file import write_tensors


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_whoever_may_read_a_new_file_may_read_these(tmp_path, mask):
    before = os.umask(mask)
    try:
        (tmp_path / "other").touch()
        for _ in range(2):  # a new file, and one in another's place
            write_tensors(tmp_path / "file", {"a": torch.arange(3.0)})
            assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)
    finally:
        os.umask(before)


def test_tensors_that_share_memory_are_all_there(tmp_path):
    whole = torch.arange(6.0).reshape(2, 3)
    write_tensors(tmp_path / "file", {"whole": whole, "again": whole, "row": whole[1], "turned": whole.T}, {"of": "me"})
    found = load_file(tmp_path / "file")
    assert {name: each.tolist() for name, each in found.items()} == {
        "whole": whole.tolist(), "again": whole.tolist(), "row": whole[1].tolist(), "turned": whole.T.tolist(),
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
