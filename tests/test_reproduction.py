"""The page of the paper's re-run is what results/ says, and its runs are what the paper describes."""

import json
import time

import pytest

import experiments
import page
import run
from fedamp.description import Description, Named
from fedamp.methods import METHODS


def test_the_page_is_what_the_results_say():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: python paper/page.py"


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_cell_is_a_run_with_a_name_of_its_own(name):
    cells = experiments.table(name)
    assert len({cell.label for cell in cells}) == len(cells)
    for cell in cells:
        description = cell.description
        assert description.batch_size == 100
        assert description.epochs == 10
        assert METHODS[description.method.name](**_without_oracle(description.method))


def _without_oracle(choice: Named) -> dict:
    return {name: "uniform" if value == "oracle" else value for name, value in choice.parameters.items()}


def test_the_paper_has_600_rounds_for_two_methods_and_90_for_the_others():
    for cell in experiments.table("table3-emnist"):
        slow = cell.description.method.name in ("scaffold", "apfl")
        assert cell.description.rounds == (600 if slow else 90)
        assert (cell.patience == 40) == slow


def test_tuning_never_sees_a_test_sample():
    for cell in experiments.table("tune-emnist"):
        assert cell.description.validation == 0.2


def test_what_validation_chose_is_what_the_table_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "RESULTS", tmp_path)
    assert experiments._tuned("table3", "emnist", "fedamp") == {}
    for cell in experiments.table("tune-emnist"):
        cell.path.parent.mkdir(exist_ok=True)
        score = 70 - abs(float(cell.label.rpartition("-")[2]) - 30)
        cell.path.write_text(json.dumps({"validation": {"own": score}}))
    chosen = {cell.label: cell.description.method.parameters for cell in experiments.table("table3-emnist")}
    assert chosen["fedamp-seed0"]["sigma"] == 30.0
    assert chosen["apfl-seed0"]["mixture"] == 0.9
    ablation = {cell.label: cell.description for cell in experiments.table("ablation-emnist")}
    assert ablation["start-w-seed1"].method.parameters["sigma"] == 30.0
    assert ablation["uniform-seed0"].method.parameters["sigma"] == float("inf")
    assert ablation["own-init-seed0"].init == "own"


@pytest.fixture
def digits(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "RESULTS", tmp_path / "results")
    values = {"clients": 5, "rounds": 6, "epochs": 1, "setting": Named("practical", {"groups": 2})}

    def cell(method: str, patience: int | None = None, **more) -> experiments.Cell:
        return experiments.Cell("digits", f"{method}-seed0", {**values, **more, "method": method}, patience)

    return cell


def test_a_cell_is_run_and_distilled(tmp_path, digits):
    cell = digits("heurfedamp", validation=0.2)
    run.play_cell(cell, tmp_path / "runs", None, {}, time.monotonic() + 600)
    told = json.loads(cell.path.read_text())
    assert Description.of(told["description"]).method.name == "heurfedamp"
    assert told["own"]["best"] == pytest.approx(max(told["own"]["curve"]), abs=0.01)
    assert len(told["own"]["per_client"]) == 5
    assert len(told["recovery"]) == 6
    assert sum(told["xi"]["6"][0]) == pytest.approx(1, abs=1e-3)
    assert {"device", "torch", "fedamp", "command", "seconds", "validation"} <= told.keys()
    assert len(cell.path.read_bytes()) < 20_000


def test_a_run_ends_where_nothing_gets_better_and_goes_on_where_time_was_short(tmp_path, digits):
    with pytest.raises(run.LaterError):
        run.play_cell(digits("scaffold", 2, lr=1e-9), tmp_path / "runs", None, {}, time.monotonic() - 1)
    cell = digits("scaffold", 2, lr=1e-9, rounds=50)
    with pytest.raises(ValueError, match="another run"):
        run.play_cell(cell, tmp_path / "runs", None, {}, time.monotonic() + 600)
    run.play_cell(cell, tmp_path / "more", None, {}, time.monotonic() + 600)
    told = json.loads(cell.path.read_text())
    assert told["stopped"] == "2 rounds brought no better mean"
    assert len(told["own"]["curve"]) == 3
