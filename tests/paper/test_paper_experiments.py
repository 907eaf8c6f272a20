"""The runs of the tables are what the paper describes, and what validation chose."""

import json

import pytest

from fedamp.config import Named
from fedamp.config.presets import preset
from fedamp.methods import METHODS
from paper import experiments, results, sizes


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """Results of tuning in which 10 is the best sigma and 0.9 the best mixture."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    for cell in experiments.table("sizes-cifar100"):
        setting, _, size = cell.label.partition("-samples-")
        results.write(cell.path, {"own": {"best": sizes.published("cifar100", setting) + (int(size) - 800) / 100}})
    for name in (name for name in experiments.NAMES if name.startswith("tune")):
        for cell in experiments.table(name):
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


@pytest.mark.parametrize(
    "name", ["tune-emnist", "ablation-emnist", "robust-fmnist", "tune1-cifar100", "table2-cifar100"]
)
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


def test_cifar100_has_a_third_of_the_rounds_and_one_seed(chosen):
    for kind in ("table1", "table2", "table3"):
        cells = {cell.label: cell for cell in experiments.table(f"{kind}-cifar100")}
        assert len(cells) == 7
        for cell in cells.values():
            assert (cell.config.rounds, cell.config.seed, cell.config.model.name) == (30, 0, "resnet18")
        assert cells["fedamp-sigma-10-seed0"].config.method.parameters["alpha_every"] == 10
        assert cells["scaffold-seed0"].patience == 13
    auto = experiments.table("auto-cifar100")
    assert {(cell.config.setting.name, cell.config.seed) for cell in auto} == {
        (setting, seed) for setting in experiments.SETTING.values() for seed in (0, 100)
    }


def test_cifar100_has_the_size_at_which_separate_is_nearest_to_the_paper(chosen):
    assert [sizes.chosen("cifar100", setting) for setting in experiments.SETTING.values()] == [800, 800, 800]
    trial = results.path_of("sizes-cifar100", "iid-samples-400")
    results.write(trial, {"own": {"best": 9.8}})  # the paper's is 9.82; 800 is as near
    results.write(results.path_of("sizes-cifar100", "iid-samples-800"), {"own": {"best": 9.9}})
    assert experiments.table("table1-cifar100")[0].config.setting.parameters["samples"] == 400
    assert experiments.table("table3-cifar100")[0].config.setting.parameters["sizes"] == [800] * 3 + [400] * 2
    trial.unlink()
    for name in ("tune1-cifar100", "table1-cifar100"):
        assert experiments.table(name) == []  # they wait for it
        assert experiments.table(name, awaited=True)


@pytest.mark.parametrize("setting", experiments.SETTING.values())
def test_the_presets_have_the_size_that_was_chosen(setting):
    found, whole = sizes.chosen("cifar100", setting), preset(f"paper/cifar100-{setting}", "separate")["setting"]
    assert found is None or sizes.with_size(whole, found) == whole


def test_the_robustness_table_has_every_trouble_for_every_method_and_seed(chosen):
    cells = experiments.table("robust-fmnist")
    assert len(cells) == 7 * 6 * 3
    (flipped,) = (cell.config for cell in cells if cell.label == "flipped-autoamp-seed2")
    assert (flipped.attack, flipped.poisoned, flipped.replies) == ("labels", (0, 10, 20, 30, 40), "any")
    assert {cell.config.rounds for cell in cells} == {18}


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
    path = results.RESULTS / "tune-emnist" / "fedamp-sigma-100.json"
    path.write_text(json.dumps({"validation": {"own": 80.0, "received": 10.0}}))
    assert experiments.tuned("emnist", "fedamp", "own") == 100.0
    assert experiments.tuned("emnist", "fedamp", "received") == 10.0
    labels = {cell.label for cell in experiments.table("table3-emnist")}
    assert {"fedamp-sigma-10-seed0", "fedamp-sigma-100-seed0"} <= labels


def test_of_two_equally_good_values_the_one_that_is_better_for_the_other_model(chosen):
    for value, received in ((1, 5.0), (10, 6.0), (100, 9.0), (1000, 8.0)):
        path = results.RESULTS / "tune-emnist" / f"fedamp-sigma-{value}.json"
        path.write_text(json.dumps({"validation": {"own": 70.0, "received": received}}))
    assert experiments.tuned("emnist", "fedamp", "own") == 100.0
