"""A run seen while it runs: what a callback gets, how it stops a run, progress, warnings."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import fedamp
from fedamp.errors import FedampWarning, UserError
from fedamp.runs.watching import progress
from fedamp.runs.watching.round_line import RoundLine
from helpers import Terminal

QUICK = {"method": "fedamp", "rounds": 4, "epochs": 1, "clients": 5}


def test_a_callback_sees_every_round_as_the_record_has_it():
    seen = []
    result = fedamp.run(on_round=seen.append, **QUICK)
    assert [line.round for line in seen] == [1, 2, 3, 4]
    assert {line.rounds for line in seen} == {4}
    assert np.array([line.per_client for line in seen]) == pytest.approx(result.scores)
    assert [line.mean for line in seen] == pytest.approx(result.scores.mean(1))
    assert [line.worst for line in seen] == pytest.approx(result.scores.min(1))
    played = [line for line in result.history if "present" in line]
    assert [line.raw for line in seen] == played
    assert [line.loss for line in seen] == pytest.approx([np.mean(line["train_loss"]) for line in played])
    assert sum(line.seconds for line in seen) == pytest.approx(result.seconds)
    assert seen[0].in_words == f"round 1 of 4: accuracy {seen[0].mean:.2f} %"


def test_absent_and_poisoned_clients():
    line = {
        "round": 2,
        "present": [True, True, False],
        "test": {"own": {"rmse": [1.0, 3.0, None]}},
        "events": ["look"],
        "seconds": 0.5,
        "train_loss": [2.0, 4.0, None],
    }
    view = RoundLine.of(line, rounds=3, scored="own", poisoned=(1,))
    assert (view.metric, view.mean, view.worst, view.per_client) == ("rmse", 1.0, 1.0, [1.0, 3.0, None])
    assert (view.loss, view.events) == (3.0, ["look"])
    assert RoundLine.of({**line, "test": {}}, 3, "own").mean is None


def test_false_stops_the_run_and_leaves_a_usable_result(tmp_path):
    whole = fedamp.run(**QUICK)
    early = fedamp.run(on_round=lambda line: line.round < 2, out=tmp_path / "run", **QUICK)
    assert np.array_equal(early.scores, whole.scores[:2])
    assert early.client_model(0) is not None
    resumed = fedamp.run(out=tmp_path / "run", **QUICK)
    assert np.array_equal(resumed.scores, whole.scores)


def test_a_fault_in_a_callback_keeps_its_traceback_and_no_round_is_lost(tmp_path):
    class Mine(Exception):  # noqa: N818
        pass

    def fail(line):
        if line.round == 2:
            raise Mine("at the second")

    with pytest.raises(Mine) as caught:
        fedamp.run(on_round=fail, out=tmp_path / "run", **QUICK)
    assert caught.traceback[-1].name == "fail"
    again = []
    resumed = fedamp.run(on_round=again.append, out=tmp_path / "run", **QUICK)
    assert [line.round for line in again] == [3, 4], "what was played before is not played again"
    assert np.array_equal(resumed.scores, fedamp.run(**QUICK).scores)


def test_what_is_no_function_is_no_callback():
    with pytest.raises(UserError, match="on_round is 3; expected a function"):
        fedamp.run(on_round=3, **QUICK)


def test_warnings_are_pythons_own_and_point_at_the_users_line():
    x = np.random.default_rng(0).normal(size=(2, 20, 3)).astype("float32")
    silos = [(each, np.zeros(20, dtype="int64")) for each in x]
    with pytest.warns(FedampWarning, match="nothing to learn") as seen:
        result = fedamp.run(clients=silos, model="logistic", method="fedavg", rounds=1, steps=1)
    mine = [each for each in seen if each.category is FedampWarning]
    assert [str(each.message) for each in mine] == result.warnings
    assert {each.filename for each in mine} == {__file__}
    assert issubclass(fedamp.FedampWarning, UserWarning)


def test_a_run_with_nothing_to_say_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fedamp.run(method="separate", rounds=1, steps=1, clients=5).warnings == []


# Progress


def test_progress_is_for_terminals_unless_asked_for(monkeypatch):
    assert progress.where("auto") == progress.where(False) == "nowhere"
    assert progress.where(True) == "terminal"
    monkeypatch.setattr("sys.stderr", Terminal())
    assert progress.where("auto") == "terminal"
    with pytest.raises(UserError, match="progress is 'yes'"):
        progress.where("yes")


def test_a_bar_in_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    fedamp.run(progress=True, **QUICK)
    assert "round 4 of 4" in terminal.getvalue()


def test_nothing_is_shown_where_nobody_looks(capfd):
    fedamp.run(**QUICK)
    assert capfd.readouterr() == ("", "")


def test_a_notebooks_line_is_replaced_and_not_too_often(monkeypatch):
    class Handle:
        texts: list[str] = []  # noqa: RUF012

        def update(self, data, raw):
            self.texts.append(data["text/plain"])

    monkeypatch.setattr("IPython.display.display", lambda *_, **__: Handle())
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.1)
    fedamp.run(**QUICK)
    assert len(Handle.texts) == 2
    assert Handle.texts[0].startswith("fedamp, round 1 of 4: accuracy")
    assert Handle.texts[1].startswith("fedamp, round 4 of 4"), "the last one is always shown"


@pytest.mark.slow
def test_in_a_real_notebook(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cells = [
        "import fedamp",
        "result = fedamp.run(method='fedamp', clients=5, rounds=60, steps=1)",
        "fedamp.compare('fedamp', clients=5, rounds=2, steps=1)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    run, compared = (cell.outputs for cell in notebook.cells[1:])
    assert len(run) == 1
    assert "round 60 of 60" in run[0]["data"]["text/plain"]
    shown = [each["data"] for each in compared if "data" in each]
    assert any("<table>" in data.get("text/html", "") for data in shown)
    assert len(compared) <= 3
    assert not list(Path(tmp_path).iterdir())
