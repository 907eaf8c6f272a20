"""A silo's disk that is full: a line that says what to do, and the round is only missed."""

import errno
import os

import pytest

from fedamp.federation.silo import memory
from fedamp.federation.silo.app import LOG
from federation.inprocess import Local, plan_of, write_silos


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_can_not_be_written_is_told_in_a_line(tmp_path, monkeypatch, number):
    local = Local(tmp_path, plan_of(write_silos(tmp_path / "data"), rounds=2), tmp_path / "data")
    write, failed = memory.write_tensors, []

    def full(path, *rest):
        if local.houses[1].folder in path.parents and not failed:
            failed.append(path)
            raise OSError(number, os.strerror(number))
        write(path, *rest)

    monkeypatch.setattr(memory, "write_tensors", full)
    local.serve()
    log = (local.houses[1].folder / LOG).read_text()
    assert failed
    assert (f"can't write {local.houses[1].folder}: {os.strerror(number)}; make room" in log) == (number != errno.EIO)
    assert ("Traceback" in log) == (number == errno.EIO)  # a disk that breaks is no matter of room
    assert "round 2: own model" in log
