"""The data of `fedamp federation try`."""

import numpy as np

from fedamp.data.silos.read import read_silo


def test_digits_of_three_silos(tmp_path):
    from fedamp.federation.demo import write_digits

    read = [read_silo(path) for path in write_digits(tmp_path / "digits")]
    assert [silo.name for silo in read] == ["hospital-a", "hospital-b", "hospital-c"]
    assert {silo.x.shape[1:] for silo in read} == {(8, 8)}
    assert all(len(np.unique(silo.y)) == 10 for silo in read)
