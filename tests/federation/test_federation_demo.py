"""The data and the rules of `fedamp federation try`."""

import numpy as np
from rich.table import Table

from fedamp.data.silos.read import read_silo
from fedamp.federation.plan_files import read_federation


def test_digits_of_three_silos(tmp_path):
    from fedamp.federation.demo import write_digits

    read = [read_silo(path) for path in write_digits(tmp_path / "digits")]
    assert [silo.name for silo in read] == ["hospital-a", "hospital-b", "hospital-c"]
    assert {silo.x.shape[1:] for silo in read} == {(8, 8)}
    assert all(len(np.unique(silo.y)) == 10 for silo in read)


def test_a_round_waits_for_all_three_also_on_a_slow_machine(tmp_path, monkeypatch):
    """With two, as many as a round needs at least, the third one missed the first rounds."""
    from fedamp.federation import demo

    monkeypatch.setattr(demo, "run_all", lambda *_: None)  # what follows needs a record
    monkeypatch.setattr(demo, "median_round", lambda record: 1.0)
    monkeypatch.setattr(demo, "_scores", lambda *_: Table())
    demo.play("fedamp", 1, tmp_path / "trial", False, False, lambda text: None, lambda table: None)
    assert read_federation(tmp_path / "trial/federation").rules.min_silos == 3
