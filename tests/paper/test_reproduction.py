"""The page of the paper's re-run is what results/ says, and its runs are what the paper describes."""

import json
import time

import pytest

import experiments
import outcomes
import page
import run
import tables
from fedamp.config import Named, RunConfig
from fedamp.config.presets import preset
from fedamp.methods import METHODS


def test_the_page_is_what_the_results_say():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: python paper/page.py"
    assert page.README.read_text(encoding="utf-8") == page.readme(), "run: python paper/page.py"
    assert "| Separate |" in page.README.read_text(encoding="utf-8")


def test_where_nothing_was_run_the_page_says_so(tmp_path, monkeypatch):
    (tmp_path / "theorems.json").write_text((experiments.RESULTS / "theorems.json").read_text())
    for module in (experiments, outcomes, tables):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    assert "| Separate | not run | 86.30 |" in page.page()
    assert "**not run** on EMNIST" in page.readme()


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """Results of tuning in which 10 is the best sigma and 0.9 the best mixture."""
    monkeypatch.setattr(experiments, "RESULTS", tmp_path)
    for data in ("emnist", "fmnist", "mnist"):
        for cell in experiments.table(f"tune-{data}"):
            cell.path.parent.mkdir(exist_ok=True)
            score = 70 - abs(float(cell.label.rpartition("-")[2]) - 10)
            better = score + 1 if cell.label.startswith("fedamp") else score - 1
            cell.path.write_text(json.dumps({"validation": {"own": score, "received": better}}))


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_cell_is_a_run_with_a_name_of_its_own(name, chosen):
    cells = experiments.table(name)
    assert cells
    assert len({cell.label for cell in cells}) == len(cells)
    for cell in cells:
        config = cell.config
        assert config.batch_size == 100
        assert config.epochs == 10
        if name != "robust-fmnist":
            assert config.label_noise == config.absent == 0
        assert METHODS[config.method.name](**_without_oracle(config.method))


def _without_oracle(choice: Named) -> dict:
    return {name: "uniform" if value == "oracle" else value for name, value in choice.parameters.items()}


def test_the_paper_has_600_rounds_for_two_methods_and_90_for_the_others():
    for cell in experiments.table("table3-emnist"):
        slow = cell.config.method.name in ("scaffold", "apfl")
        assert cell.config.rounds == (600 if slow else 90)
        assert (cell.patience == 40) == slow


@pytest.mark.parametrize("name", ["tune-emnist", "ablation-emnist", "robust-fmnist"])
def test_in_a_shorter_run_alpha_falls_as_far(name, chosen):
    for cell in experiments.table(name):
        config = cell.config
        if config.method.name in ("fedamp", "heurfedamp"):
            assert config.rounds == 3 * config.method.parameters["alpha_every"]


@pytest.mark.parametrize("data", ["mnist", "fmnist", "emnist"])
@pytest.mark.parametrize("method", experiments.GRIDS)
def test_the_presets_have_what_validation_chose_for_w(data, method):
    knob = experiments.GRIDS[method][0]
    assert preset(f"paper/{data}-practical", method)["method"][knob] == experiments.tuned(data, method, "own")


def test_what_validation_chose_is_what_the_table_runs(chosen):
    runs = {cell.label: cell.config.method.parameters for cell in experiments.table("table3-emnist")}
    assert runs["fedamp-sigma-10-seed0"]["sigma"] == 10.0
    assert runs["apfl-mixture-0.9-seed0"]["mixture"] == 0.9
    assert not [label for label in runs if label.startswith("fedamp-sigma-100")]  # nobody chose it
    ablation = {cell.label: cell.config for cell in experiments.table("ablation-emnist")}
    assert ablation["start-w-seed1"].method.parameters["sigma"] == 10.0
    assert ablation["uniform-seed0"].method.parameters["sigma"] == float("inf")
    assert ablation["own-init-seed0"].init == "own"


def test_each_of_the_two_models_is_tuned_for(chosen):
    path = experiments.RESULTS / "tune-emnist" / "fedamp-sigma-100.json"
    path.write_text(json.dumps({"validation": {"own": 80.0, "received": 10.0}}))
    assert experiments.tuned("emnist", "fedamp", "own") == 100.0
    assert experiments.tuned("emnist", "fedamp", "received") == 10.0
    labels = {cell.label for cell in experiments.table("table3-emnist")}
    assert {"fedamp-sigma-10-seed0", "fedamp-sigma-100-seed0"} <= labels


def test_of_two_equally_good_values_the_one_that_is_better_for_the_other_model(chosen):
    for value, received in ((1, 5.0), (10, 6.0), (100, 9.0), (1000, 8.0)):
        path = experiments.RESULTS / "tune-emnist" / f"fedamp-sigma-{value}.json"
        path.write_text(json.dumps({"validation": {"own": 70.0, "received": received}}))
    assert experiments.tuned("emnist", "fedamp", "own") == 100.0


def test_what_is_to_be_tuned_waits_for_the_tuning(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "RESULTS", tmp_path)
    methods = {cell.config.method.name for cell in run.missing(["table3-emnist"])}
    assert methods == {"separate", "fedavg", "fedprox", "scaffold", "fedamp"}
    assert {cell.label for cell in run.missing(["table3-emnist"], "fedamp")} == {
        f"fedamp-local-seed{seed}" for seed in experiments.SEEDS
    }
    assert run.missing(["ablation-fmnist"]) == []


@pytest.fixture
def digits(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "RESULTS", tmp_path / "results")
    values = {"clients": 5, "rounds": 6, "epochs": 1, "setting": Named("practical", {"groups": 2})}

    def cell(method: str, patience: int | None = None, **more) -> experiments.Cell:
        return experiments.Cell("digits", f"{method}-seed0", {**values, **more, "method": method}, patience)

    return cell


def test_a_cell_is_run_and_distilled(tmp_path, digits):
    cell = digits("heurfedamp")
    run.Runner().play(cell)
    told = json.loads(cell.path.read_text())
    assert RunConfig.of(told["description"]).method.name == "heurfedamp"
    assert told["own"]["best"] == pytest.approx(max(told["own"]["curve"]), abs=0.01)
    assert len(told["own"]["per_client"]) == 5
    assert len(told["recovery"]) == 6
    assert sum(told["xi"]["6"][0]) == pytest.approx(1, abs=1e-3)
    assert {"device", "torch", "fedamp", "command", "seconds"} <= told.keys()
    assert len(cell.path.read_bytes()) < 20_000


def test_tuning_keeps_the_best_validation_score_of_both_models(digits):
    cell = digits("heurfedamp", validation=0.2)
    run.Runner().play(cell)
    told = json.loads(cell.path.read_text())
    assert told["validation"].keys() == {"own", "received"}
    assert "xi" not in told


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
    told = json.loads(cell.path.read_text())["own"]
    honest = [score for i, score in enumerate(told["per_client"]) if i != 1]
    assert told["best"] == pytest.approx(sum(honest) / 4, abs=0.1)


def test_a_run_ends_where_nothing_gets_better(digits):
    cell = digits("scaffold", 2, lr=1e-9, rounds=50)
    run.Runner().play(cell)
    told = json.loads(cell.path.read_text())
    assert told["stopped"] == "2 rounds brought no better mean"
    assert len(told["own"]["curve"]) == 3


def test_a_short_run_that_has_no_time_left_is_no_result(digits):
    cell = digits("scaffold")
    with pytest.raises(run.LaterError):
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
    told = json.loads(cell.path.read_text())
    assert told["stopped"] == "the time for it was over"
    assert len(told["own"]["curve"]) == 1


def test_a_run_that_was_broken_off_goes_on(tmp_path, digits, monkeypatch):
    whole, broken = digits("fedavg"), digits("fedavg", rounds=6)
    run.Runner().play(whole)
    expected = json.loads(whole.path.read_text())["own"]["curve"]
    whole.path.unlink()
    steps, real = [], run._no_better

    def stop_at_the_third(lines, *rest):
        steps.append(lines[-1]["round"])
        if len(steps) == 3:
            raise KeyboardInterrupt
        return real(lines, *rest)

    monkeypatch.setattr(run, "_no_better", stop_at_the_third)
    patient = digits("fedavg", 40)
    with pytest.raises(KeyboardInterrupt):
        run.Runner(runs=tmp_path / "runs").play(patient)
    run.Runner(runs=tmp_path / "runs").play(patient)
    assert json.loads(broken.path.read_text())["own"]["curve"] == expected
    assert steps.count(1) == 1  # the first round was not played again
    assert not list((tmp_path / "runs").glob("*/*/checkpoint-*"))


def test_two_processes_never_take_the_same_cell(digits):
    cell = digits("fedavg")
    with run.claimed(cell) as first, run.claimed(cell) as second:
        assert (first, second) == (True, False)


def test_every_figure_is_drawn_where_there_are_results(tmp_path, monkeypatch, digits):
    pytest.importorskip("matplotlib").use("agg")
    import figures

    cell = digits(Named("fedamp", {"sigma": 10.0}))
    run.Runner().play(cell)
    told = json.loads(cell.path.read_text())
    local = {**told, "description": {**told["description"], "method": {"name": "fedamp", "sigma": "local"}}}

    def found(table, row):
        kept = {"fedamp": told, "fedamp-local": local}.get(row.run)
        return {0: {**kept[row.entry], "run": kept}} if kept and table == "table3-emnist" else {}

    monkeypatch.setattr(figures, "found", found)
    monkeypatch.setattr(figures, "RESULTS", outcomes.RESULTS)
    monkeypatch.setattr(figures, "IMAGES", tmp_path / "images")
    (tmp_path / "images").mkdir()
    figures.draw_all()
    drawn = {path.stem for path in (tmp_path / "images").iterdir()}
    assert drawn == {"theorems", "curves-emnist", "distributions-emnist", "weights-emnist"}
