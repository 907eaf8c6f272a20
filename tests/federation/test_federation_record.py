"""A federation's record is read like that of a simulation."""

from dataclasses import replace

import numpy as np
import pytest

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


CASES = {
    "of a line": ("fedavg", 1e-6, ["received", "received"], " (line of round 2)"),
    "after the last line": ("fedavg", 0.01, ["received", "received"], " (scored after the last line)"),
    "own": ("fedamp", 0.01, ["own", "own"], ""),
    "probes": ("autoamp", 0.01, ["own", "own", "received"], " (scored after the last line)"),
}


@pytest.mark.parametrize(("method", "lr", "entries", "where"), CASES.values(), ids=CASES)
def test_each_line_of_the_log_says_which_models_its_score_is_of(tmp_path, method, lr, entries, where):
    """The best score may be of what was sent after the last round, which has no line of its own."""
    rounds = len(entries)
    data = write_silos(tmp_path / "data")
    Local(tmp_path, plan_of(data, method, rounds=rounds, lr=lr, epochs=8), data).serve()
    run, log = read_run(tmp_path / "record"), (tmp_path / "record" / "log.txt").read_text()
    for k, entry in enumerate(entries, start=1):
        mean = 100 * np.mean(run.lines[k]["test"][entry]["accuracy"])
        assert f"round {k}/{rounds}: 3 of 3 silos, {entry} models: mean test accuracy {mean:.2f} %, worst" in log
    best, made = run.result["best"], f"of the {entries[-1]} models that round {run.result['best_round']} made{where}"
    assert f"finished: best mean test accuracy {best:.2f} %, {made}\n" in log


def engine_scores(plan, data):
    from fedamp.runs.loop import play
    from fedamp.runs.setup import assemble

    config = replace(plan.config, engine="loop")
    history = play(config, assemble(config)).history
    return np.array([line["test"]["own"]["accuracy"] for line in history if "own" in line["test"]])
