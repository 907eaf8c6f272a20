"""The commands on the page describe the runs they are shown for."""

import shlex

import pytest

from fedamp.cli import main
from fedamp.config import RunConfig
from fedamp.methods import METHODS
from fedamp.report import write_report
from fedamp.report.commands import compare_command, run_command
from run_folders import write_run


def test_a_command_leaves_out_what_is_at_its_default():
    assert run_command(RunConfig().to_dict()) == (
        "fedamp run --data digits --setting practical --clients 20 --model mlp --method autoamp --rounds 30 --epochs 5 "
        "--batch-size 10 --seed 0"
    )


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"method": {"name": "fedamp", "sigma": 25.0, "start": "w"}, "seed": 3, "lr": 1e-4},
        {"setting": {"name": "practical", "share": 0.8, "sizes": [10, 20]}, "steps": 4, "poisoned": [0, 3]},
        {"method": {"name": "heurfedamp", "self_weight": "oracle"}, "label_noise": 0.25, "noisy_clients": [1]},
        {"model": {"name": "own module:net; rm -rf /"}, "data": "it's", "absent": 0.5, "deterministic": True},
        {"method": {"name": "fedamp", "alpha": "2", "attention": {"name": "x y", "a": True}}},
    ],
)
def test_the_command_describes_the_same_run(values, monkeypatch):
    config = RunConfig.of(values).to_dict()
    found = []
    monkeypatch.setattr("fedamp.cli.run.run_one", lambda config, *rest: found.append(config.to_dict()))
    command = shlex.split(run_command(config))
    main.app(command[1:], standalone_mode=False)
    assert found == [config]


def described(method: str, seed: int, **values):
    return RunConfig.of({"method": method, "seed": seed, **values}).to_dict()


def test_the_command_of_a_comparison_plans_the_same_runs(monkeypatch):
    configs = [described(name, seed, rounds=7, lr=0.1) for name in ("separate", "apfl", "fedamp") for seed in (3, 4)]
    found = []

    def stop(runs, *rest):
        found.extend(run.config.to_dict() for run in runs)
        raise SystemExit

    monkeypatch.setattr("fedamp.runs.compare.play_all", stop)
    command = shlex.split(compare_command(configs))
    with pytest.raises(SystemExit):
        main.app(command[1:], standalone_mode=False)
    assert found == configs


def test_every_method_is_all():
    assert "--methods all --seeds 1 " in compare_command([described(name, 0) for name in METHODS])


@pytest.mark.parametrize(
    "configs",
    [
        [described("separate", 0)],
        [described("apfl", 0), described("fedamp", 0)],
        [described("separate", 0), described("fedamp", 1)],
        [described("separate", 0), described("fedamp", 0, lr=0.1)],
        [described("separate", 0), described("mine", 0)],
        [described("separate", seed) for seed in (0, 2)],
    ],
)
def test_what_no_comparison_stands_for(configs):
    assert compare_command(configs) is None


def test_given_clients_have_no_command(tmp_path):
    assert run_command(RunConfig.of({"data": "given", "setting": "given"}).to_dict()) is None
    write_run(tmp_path / "a", data="given", setting="given")
    assert "from a Python program or a federation" in write_report([tmp_path]).read_text()
