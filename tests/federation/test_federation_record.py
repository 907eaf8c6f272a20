"""A federation's record is read like that of a simulation."""

from dataclasses import replace

import numpy as np

from fedamp.records.reading import read_run
from federation.inprocess import Local, plan_of, write_silos


def test_report_and_result_read_a_federation_as_a_simulation(tmp_path, fedamp_command):
    data = write_silos(tmp_path / "data")
    plan = plan_of(data, "heurfedamp", rounds=3)
    Local(tmp_path, plan, data).serve()
    run = read_run(tmp_path / "record")
    expected = engine_scores(plan, data)
    got = np.array([line["test"]["own"]["accuracy"] for line in run.lines if "own" in line.get("test", {})])
    np.testing.assert_allclose(got, expected)
    code, out, err = fedamp_command("report", tmp_path / "record")
    assert code == 0, err
    page = (tmp_path / "record" / "report.html").read_text()
    assert "repeat it from there" in page
    assert "fedamp run --data" not in page
    code, out, err = fedamp_command("report", tmp_path / "record", "--format", "text")
    assert code == 0, err
    assert "heurfedamp" in out
    code, out, err = fedamp_command("export", tmp_path / "record", "--client", 1)
    assert (code, "each silo has its model at home" in err) == (2, True)
    code, out, err = fedamp_command("resume", tmp_path / "record")
    assert code == 0  # it is there already, and is shown
    (tmp_path / "record" / "result.json").unlink()
    code, out, err = fedamp_command("resume", tmp_path / "record")
    assert (code, "fedamp federation up" in err) == (2, True)


def engine_scores(plan, data):
    from fedamp.runs.loop import play
    from fedamp.runs.setup import assemble

    config = replace(plan.config, engine="loop")
    history = play(config, assemble(config)).history
    return np.array([line["test"]["own"]["accuracy"] for line in history if "own" in line["test"]])
