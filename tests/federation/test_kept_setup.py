"""A silo reads its data anew when it has changed, and only then."""

import os

import numpy as np
import pytest

from fedamp.federation.silo import kept_setup as module
from fedamp.federation.silo.kept_setup import DataError, fingerprint, kept_setup
from federation.inprocess import Local, plan_of, write_silos


@pytest.fixture
def house(tmp_path):
    data = write_silos(tmp_path / "data")
    return Local(tmp_path, plan_of(data), data).houses[0]


def test_what_has_not_changed_is_not_read_again(house, monkeypatch):
    first = kept_setup(house.config, house.data, False)
    monkeypatch.setattr(module, "read_silo", None)
    assert kept_setup(house.config, house.data, False) is first


def test_another_value_in_a_file_of_the_same_size_and_age_is_noticed(house):
    first = kept_setup(house.config, house.data, False)
    stat, rows = house.data.stat(), dict(np.load(house.data))
    rows["x"][0, 0] += 1
    np.savez(house.data, **rows)
    os.utime(house.data, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (house.data.stat().st_size, house.data.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    again = kept_setup(house.config, house.data, False)
    assert again is not first
    assert not (again.clients.x == first.clients.x).all()


def test_another_plan_or_a_model_alone_is_made_anew(house, tmp_path):
    first = kept_setup(house.config, house.data, False)
    other = Local(tmp_path, plan_of(house.data.parent, "fedavg"), house.data.parent).houses[0]
    assert kept_setup(other.config, house.data, False) is not first
    assert type(kept_setup(other.config, house.data, True).method).__name__ == "AloneBeside"


def test_a_folder_changes_with_each_of_its_files(tmp_path):
    (tmp_path / "a").write_text("1")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "b").write_text("2")
    assert fingerprint(tmp_path) != before


def test_a_file_that_is_gone_is_told(house):
    house.data.unlink()
    with pytest.raises(DataError, match="No such file"):
        kept_setup(house.config, house.data, False)
