"""Trackers: what they are told is what the record has, read back with their own readers; none can cost a run."""

import json
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

import fedamp
from fedamp.errors import FedampWarning, UserError
from fedamp.runs.watching import track
from fedamp.runs.watching.track import tracker_names

QUICK = {"method": "fedamp", "rounds": 3, "epochs": 1, "clients": 5}


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def wandb(monkeypatch):
    """A module called wandb that notes what it is told."""
    told = types.SimpleNamespace(init=[], log=[], summary={}, finished=0, fail_at=None)

    class Run:
        summary = told.summary

        def log(self, values, step):
            if step == told.fail_at:
                raise ConnectionError("no\nnetwork")
            told.log.append((step, values))

        def finish(self):
            told.finished += 1

    fake = types.ModuleType("wandb")
    fake.__spec__ = types.SimpleNamespace()
    fake.Histogram = lambda values: ("histogram", list(values))
    fake.init = lambda **given: told.init.append(given) or Run()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delitem(sys.modules, "fedamp.runs.watching.track.to_wandb", raising=False)
    return told


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder / "tensorboard"), size_guidance={"histograms": 0}).Reload()


def test_tensorboard_has_every_round_once_after_an_interruption_too(tmp_path):
    fedamp.run(out="here", track="tensorboard", on_round=lambda line: line.round < 2, **QUICK)
    result = fedamp.run(out="here", track="tensorboard", **QUICK)
    found = events(Path("here"))
    means = found.Scalars("mean_accuracy")
    assert [each.step for each in means] == [1, 2, 3]
    assert [each.value for each in means] == pytest.approx(result.scores.mean(1))
    assert [each.value for each in found.Scalars("worst_accuracy")] == pytest.approx(result.scores.min(1))
    assert [each.step for each in found.Scalars("train_loss")] == [1, 2, 3]
    histograms = found.Histograms("clients/accuracy")
    assert [each.histogram_value.num for each in histograms] == [5, 5, 5]
    assert found.Scalars("summary/best")[-1].value == pytest.approx(result.best)
    text = found.Tensors("config/text_summary")[-1].tensor_proto.string_val[0].decode()
    assert '"method.name": "fedamp"' in text


def test_tensorboard_keeps_its_curves_if_a_finished_run_is_asked_for_again():
    for _ in range(2):
        fedamp.run(out="here", track="tensorboard", **QUICK)
    assert [each.step for each in events(Path("here")).Scalars("mean_accuracy")] == [1, 2, 3]


@pytest.mark.slow
def test_mlflow_has_every_round_once_after_an_interruption_too():
    from mlflow import MlflowClient

    fedamp.run(out="here", track="mlflow", on_round=lambda line: line.round < 2, **QUICK)
    result = fedamp.run(out="here", track="mlflow", **QUICK)
    client = MlflowClient(f"sqlite:///{Path('here/mlflow.db').resolve()}")
    experiment = client.get_experiment_by_name("fedamp")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert (run.data.params["method.name"], run.data.params["rounds"]) == ("fedamp", "3")
    history = client.get_metric_history(run.info.run_id, "mean_accuracy")
    assert [each.step for each in history] == [1, 2, 3]
    assert [each.value for each in history] == pytest.approx(result.scores.mean(1))
    one = client.get_metric_history(run.info.run_id, "accuracy/client_2")
    assert [each.value for each in one] == pytest.approx(result.scores[:, 2])
    assert run.data.metrics["summary_best"] == pytest.approx(result.best)
    assert sorted(path.name for path in Path().iterdir()) == ["here"], "nothing is written beside the run's folder"


@pytest.mark.slow
def test_mlflow_has_names_of_clients_and_of_ones_own_metric():
    """As they are, where MLflow takes them: it refuses a sign like the euro's, and with it all that it is told."""
    from mlflow import MlflowClient

    stream = torch.Generator().manual_seed(0)
    names = ("north", "a/b", "süd")
    given = {name: (torch.randn(30, 3, generator=stream), torch.arange(30) % 2) for name in names}
    cost = fedamp.Metric("cost", lambda output, y: (output.argmax(-1) != y).double().mean(), False, "€")
    settings = {"model": "logistic", "rounds": 1, "epochs": 1, "out": "here", "track": "mlflow"}
    result = fedamp.run(clients=given, metric=cost, **settings)
    client = MlflowClient(f"sqlite:///{Path('here/mlflow.db').resolve()}")
    (run,) = client.search_runs([client.get_experiment_by_name("fedamp").experiment_id])
    found = {name: value for name, value in run.data.metrics.items() if name.startswith("cost/")}
    names = ("cost/north", "cost/client_1", "cost/client_2")
    assert found == pytest.approx(dict(zip(names, result.scores[-1], strict=True)))
    assert run.data.metrics["mean_cost"] == pytest.approx(result.best)


def test_wandb_is_told_the_same(wandb):
    fedamp.run(out="here", track=["wandb"], on_round=lambda line: line.round < 2, **QUICK)
    result = fedamp.run(out="here", track="wandb", **QUICK)
    first, second = wandb.init
    assert first["id"] == second["id"] == json.loads(Path("here/track.json").read_text())["wandb"]
    assert (first["project"], first["config"]["method.name"]) == ("fedamp", "fedamp")
    assert [step for step, _ in wandb.log] == [1, 2, 3]
    assert [values["mean_accuracy"] for _, values in wandb.log] == pytest.approx(result.scores.mean(1))
    assert wandb.log[0][1]["clients/accuracy"] == ("histogram", pytest.approx(result.scores[0]))
    assert wandb.summary["best"] == result.best
    assert wandb.finished == 2


def test_a_tracker_that_fails_costs_nothing_but_a_warning(wandb):
    wandb.fail_at = 2
    with pytest.warns(FedampWarning, match=r"wandb failed \(ConnectionError: no network\); the run goes on") as seen:
        result = fedamp.run(out="here", track="wandb", **QUICK)
    assert len([each for each in seen if "wandb" in str(each.message)]) == 1
    assert [step for step, _ in wandb.log] == [1]
    assert np.array_equal(result.scores, fedamp.run(**QUICK).scores)
    assert json.loads(Path("here/result.json").read_text())["finished"]


def test_one_that_can_not_even_start(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://here")
    with pytest.warns(FedampWarning, match="mlflow failed"):
        assert len(fedamp.run(out="here", track="mlflow,tensorboard", **QUICK).scores) == 3
    assert len(events(Path("here")).Scalars("mean_accuracy")) == 3, "the other one goes on"


def test_scores_that_are_not_finite(wandb):
    line = fedamp.RoundLine(1, 2, "rmse", math.inf, math.inf, [math.inf, 1.0], None, 0.1, [], {})
    tracked = track.Tracked("name", Path("there"), Path("there"), {})
    Path("there").mkdir()
    warned = []
    trackers = track.Tracking(["tensorboard", "wandb"], tracked, warned.append)
    trackers.round(line)
    trackers.close()
    assert warned == []
    assert wandb.log[0][1]["clients/rmse"] == ("histogram", [1.0])


def test_at_the_command_line(fedamp_command, wandb):
    told = ["--rounds", "2", "--epochs", "1", "--clients", "5", "--method", "fedamp", "--out", "run"]
    wandb.fail_at = 2
    code, _, err = fedamp_command("run", *told, "--track", "tensorboard,wandb")
    assert code == 0
    assert "warning: wandb failed (ConnectionError: no network)" in err
    assert len(events(Path("run")).Scalars("seconds")) == 2
    # Where it is shown is no part of what the run is.
    assert "already finished" in fedamp_command("run", *told)[1]


def test_a_comparison_is_tracked_run_by_run(fedamp_command, wandb):
    told = ["--rounds", "2", "--epochs", "1", "--clients", "5", "--methods", "fedamp", "--out", "all"]
    code, _, err = fedamp_command("compare", *told, "--track", "tensorboard,wandb")
    assert code == 0, err
    assert [step for step, _ in wandb.log] == [1, 2, 1, 2]
    assert len(events(Path("all/separate-seed0")).Scalars("mean_accuracy")) == 2


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("tensorbord", "did you mean 'tensorboard'"),
        ("wandb", "wandb is not installed; run: pip install wandb"),
    ],
)
def test_mistakes_are_found_first(monkeypatch, fedamp_command, asked, words):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr(track, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=words):
        fedamp.run(track=asked, out="here", **QUICK)
    code, _, err = fedamp_command("run", "--track", asked, "--out", "here")
    assert (code, err.count("\n"), words in err) == (2, 1, True)
    assert not Path("here").exists()


def test_its_files_need_a_folder():
    with pytest.raises(UserError, match="give out='a-folder'"):
        fedamp.run(track="tensorboard", **QUICK)


def test_names():
    assert tracker_names(None) == tracker_names("") == []
    assert tracker_names("tensorboard, mlflow,tensorboard") == tracker_names(["tensorboard", "mlflow"])
