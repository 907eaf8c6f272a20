"""A run of a table: what is kept of it, when it ends early, how it is continued and shared."""

import json
import time

import pytest

from fedamp.config import RunConfig
from paper import experiments, pending, results, run, watch


def test_what_is_to_be_tuned_waits_for_the_tuning(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    methods = {cell.config.method.name for cell in pending.missing(["table3-emnist"])}
    assert methods == {"separate", "fedavg", "fedprox", "scaffold", "fedamp"}
    assert {cell.label for cell in pending.missing(["table3-emnist"], "fedamp")} == {
        f"fedamp-local-seed{seed}" for seed in experiments.SEEDS
    }
    assert pending.missing(["ablation-fmnist"]) == []


def test_a_cell_is_run_and_distilled(tmp_path, digits):
    cell = digits("heurfedamp")
    run.Runner().play(cell)
    result = json.loads(cell.path.read_text())
    assert RunConfig.of(result["description"]).method.name == "heurfedamp"
    assert result["own"]["best"] == pytest.approx(max(result["own"]["curve"]), abs=0.01)
    assert len(result["own"]["per_client"]) == 5
    assert len(result["recovery"]) == 6
    assert sum(result["xi"]["6"][0]) == pytest.approx(1, abs=1e-3)
    assert {"device", "torch", "fedamp", "command", "seconds"} <= result.keys()
    assert len(cell.path.read_bytes()) < 20_000


def test_tuning_keeps_the_best_validation_score_of_both_models(digits):
    cell = digits("heurfedamp", validation=0.2)
    run.Runner().play(cell)
    result = json.loads(cell.path.read_text())
    assert result["validation"].keys() == {"own", "received"}
    assert "xi" not in result


def test_runs_one_after_the_other_share_their_passes_and_nothing_else(digits):
    runner = run.Runner()
    scores = []
    for method in ("fedamp", "separate", "fedamp"):
        cell = digits(method)
        cell.path.unlink(missing_ok=True)
        runner.play(cell)
        scores.append(json.loads(cell.path.read_text())["own"]["curve"])
    assert len(runner.passes) == 1
    assert scores[0] == scores[2] != scores[1]


def test_a_poisoned_client_is_in_no_mean(digits):
    cell = digits("fedavg", poisoned=(1,))
    run.Runner().play(cell)
    scores = json.loads(cell.path.read_text())["own"]
    honest = [score for i, score in enumerate(scores["per_client"]) if i != 1]
    assert scores["best"] == pytest.approx(sum(honest) / 4, abs=0.1)


def test_a_run_ends_where_nothing_gets_better(digits):
    cell = digits("scaffold", 2, lr=1e-9, rounds=50)
    run.Runner().play(cell)
    result = json.loads(cell.path.read_text())
    assert result["stopped"] == "2 rounds brought no better mean"
    assert len(result["own"]["curve"]) == 3


def test_a_short_run_that_has_no_time_left_is_no_result(digits):
    cell = digits("scaffold")
    with pytest.raises(run.OutOfTimeError):
        run.Runner(deadline=time.monotonic() - 1).play(cell)
    assert not cell.path.exists()


def test_one_table_is_of_one_kind_of_data(digits, monkeypatch):
    monkeypatch.setattr(run, "play", lambda *_: pytest.fail("it ran for nothing"))
    cell = digits("separate")
    cell.path.parent.mkdir(parents=True)
    (cell.path.parent / "other-seed0.json").write_text(json.dumps({"data": "only a part of it"}))
    with pytest.raises(ValueError, match="one table needs one kind of data"):
        run.Runner().play(cell)


def test_a_long_run_that_has_no_time_left_keeps_what_there_is(digits):
    cell = digits("scaffold", rounds=600)
    run.Runner(deadline=time.monotonic() - 1).play(cell)
    result = json.loads(cell.path.read_text())
    assert result["stopped"] == "the time for it was over"
    assert len(result["own"]["curve"]) == 1


def test_a_run_that_was_broken_off_goes_on(tmp_path, digits, monkeypatch):
    whole, broken = digits("fedavg"), digits("fedavg", rounds=6)
    run.Runner().play(whole)
    expected = json.loads(whole.path.read_text())["own"]["curve"]
    whole.path.unlink()
    steps, real = [], watch.no_better

    def stop_at_the_third(lines, *rest):
        steps.append(lines[-1]["round"])
        if len(steps) == 3:
            raise KeyboardInterrupt
        return real(lines, *rest)

    monkeypatch.setattr(watch, "no_better", stop_at_the_third)
    patient = digits("fedavg", 40)
    with pytest.raises(KeyboardInterrupt):
        run.Runner(runs=tmp_path / "runs").play(patient)
    run.Runner(runs=tmp_path / "runs").play(patient)
    assert json.loads(broken.path.read_text())["own"]["curve"] == expected
    assert steps.count(1) == 1  # the first round was not played again
    assert not list((tmp_path / "runs").glob("*/*/checkpoint-*"))


def test_two_processes_never_take_the_same_cell(digits):
    cell = digits("fedavg")
    with pending.claimed(cell) as first, pending.claimed(cell) as second:
        assert (first, second) == (True, False)
