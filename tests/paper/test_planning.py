"""What is left to run, in which order, and how long it takes."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from paper import estimates, experiments, pending, planning, results, run
from paper.estimates import Measured


def cell(name, label):
    return next(each for each in experiments.table(name, awaited=True) if each.label == label)


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)


def test_sample_passes_by_hand(empty):
    # EMNIST practical: 10 clients of 1000, 26 of 700 and 26 of 400, ten epochs; a fifth is held out when tuning.
    assert estimates.passes(cell("table3-emnist", "fedavg-seed0").config) == 386_000
    assert estimates.passes(cell("tune-emnist", "fedamp-sigma-10").config) == pytest.approx(308_800)
    assert estimates.passes(cell("table3-cifar100", "fedavg-seed0").config) == 400_000
    assert estimates.passes(cell("table1-fmnist", "fedavg-seed0").config) == 50 * 500 * 10


@pytest.fixture
def speed(monkeypatch):
    monkeypatch.setattr(estimates, "SPEED", {"cnn": 500_000.0, "resnet18": 50_000.0})


def test_what_was_never_run_has_the_speed_of_its_model(empty, speed):
    assert Measured().estimate(cell("table3-cifar100", "fedavg-seed0")) == pytest.approx(30 * 400_000 / 50_000)
    awaited = cell("table3-cifar100", f"apfl-mixture-{experiments.TO_COME}-seed0")
    assert Measured().estimate(awaited) == pytest.approx(2 * 30 * 400_000 / 50_000)


def test_that_speed_is_the_documented_one():
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    best = re.findall(r"^\| (CNN|ResNet18), .*\*\*(\d+) k\*\*", page, re.MULTILINE)
    assert {model: f"{rate / 1000:g}" for model, rate in estimates.SPEED.items()} == {
        model.lower(): rate for model, rate in best
    }


def test_an_estimate_is_passes_times_seconds_times_the_usual_share_of_rounds(empty):
    wanted = cell("table1-fmnist", "scaffold-seed0")  # 600 rounds, and it may end early
    seen = Measured({("scaffold", "cnn"): 2e-6, ("fedavg", "cnn"): 1.0}, {("scaffold", 600): [0.1, 0.5, 0.2]})
    assert seen.estimate(wanted) == pytest.approx(0.2 * 600 * 250_000 * 2e-6)


def test_rates_are_read_from_results(empty):
    done = cell("table1-fmnist", "fedavg-seed0")
    # The fastest was alone on the GPU; another device says nothing.
    for device, seconds in ((estimates.DEVICE, 90.0), (estimates.DEVICE, 50.0), ("CPU, x86_64", 1.0)):
        made = {
            "description": done.config.to_dict(),
            "device": device,
            "seconds": seconds,
            "own": {"curve": [1.0] * 45},
        }
        results.write(results.path_of("table1-fmnist", f"fedavg-{seconds}"), made)
    seen = estimates.measured(planning.NAMES)
    assert seen.seconds == {("fedavg", "cnn"): pytest.approx(50 / (45 * 250_000))}
    assert seen.shares["fedavg", 90] == [0.5, 0.5]
    assert seen.estimate(done) == pytest.approx(50.0)


def test_trials_of_sizes_say_nothing_of_speed(empty, speed):
    """They are short and were run beside each other: runs of 30 rounds seemed to take more than twice as long."""
    trial = experiments.table("sizes-cifar100")[0]
    made = {
        "description": trial.config.to_dict(),
        "device": estimates.DEVICE,
        "seconds": 9e9,
        "own": {"curve": [1.0] * 5, "best": 1.0},
    }
    results.write(trial.path, made)
    seen = estimates.measured(planning.NAMES)
    assert not seen.seconds
    assert seen.estimate(cell("table1-cifar100", "separate-seed0")) == pytest.approx(30 * 500_000 / 50_000)


def test_what_others_wait_for_comes_first_and_then_the_shortest(empty):
    steps = planning.steps(["table1-cifar100", "sizes-cifar100", "robust-fmnist", "table3-emnist", "tune-fmnist"])
    kinds = [step.cell.table.partition("-")[0] for step in steps if not step.waits]
    first = 12 + 12  # trials of sizes and of knobs
    assert set(kinds[:first]) == {"sizes", "tune"}
    assert set(kinds[first:]) == {"table3", "robust"}
    assert kinds[first] == "table3"  # before it is run a row has no figure
    shortest = [step.seconds for step in steps[:first]]
    assert shortest == sorted(shortest)
    assert {step.cell.table for step in steps if step.waits} == {"table1-cifar100", "table3-emnist"}
    # Runs in which nothing is chosen by tuning do not wait for it, and those whose size is unknown do.
    assert all(step.waits for step in steps if step.cell.table == "table1-cifar100")
    assert not any(step.waits for step in steps if step.cell.label == "separate-seed0" and "emnist" in step.cell.table)


def test_without_tables_runs_come_in_the_order_of_the_list(empty):
    ready = pending.missing(planning.NAMES)
    assert [each.path for each in planning.in_order(ready)] == [
        step.cell.path for step in planning.steps() if not step.waits
    ]


def test_what_gets_done_in_the_time_left_comes_before_what_would_be_cut_off(empty, speed, monkeypatch):
    monkeypatch.setattr(planning, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    table = cell("table3-emnist", "separate-seed0")  # 69 s; tuning is worth more, since others wait for it
    tuning = experiments.table("tune-cifar100", awaited=True)  # 38 s each, APFL's 77 s
    short, long = tuning[:6], tuning[6:]
    assert [each.label.partition("-")[0] for each in long] == ["apfl", "apfl"]
    ready = [table, *long, *short]
    assert planning.in_order(ready) == [*short, *long, table]
    assert planning.in_order(ready, 1000.0 + 100.0) == [*short, *long, table]
    assert planning.in_order(ready, 1000.0 + 70.0) == [*short, table, *long]
    assert planning.in_order(ready, 1000.0 - 1.0) == [*short, *long, table]


def test_the_list_is_printed_and_nothing_is_run(empty, speed, monkeypatch, capsys):
    monkeypatch.setattr(run, "cells_to_run", lambda *_: pytest.fail("it ran"))
    monkeypatch.setattr(sys, "argv", ["paper.run", "--list", "sizes-cifar100"])
    run.main()
    *lines, total, by_table = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    assert lines[0].split()[-2:] == ["sizes-cifar100", "iid-samples-200"]
    samples = sum(estimates.passes(each.config) * each.config.rounds for each in experiments.table("sizes-cifar100"))
    minutes = samples / 50_000 / 60
    assert total == f"12 runs, {minutes:.0f} minutes on an NVIDIA H200; by table:"
    assert by_table == f"  sizes-cifar100: 12 runs, {minutes:.1f} minutes"


def test_an_unknown_table_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["paper.run", "tabel3-emnist"])
    with pytest.raises(SystemExit, match="2"):
        run.main()
    assert "there is no table 'tabel3-emnist'; choose from" in capsys.readouterr().err
