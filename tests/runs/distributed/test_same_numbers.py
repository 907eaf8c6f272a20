"""Several processes give the numbers of one: for every method, with absent clients, and after a stop in either."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedamp.records.reading import read_run
from helpers import ALL, FAST
from runs.distributed.processes import play
from runs.distributed.worker import play_job

QUICK = {"rounds": 4, "steps": 3, "clients": 5, "model": "logistic", "batch_size": 10}
HARD = {**QUICK, "absent": 0.4, "validation": 0.2, "init": "own"}
SCENARIOS = {
    "poisoned": {"settings": {**QUICK, "method": "fedamp", "poisoned": [1, 3]}},
    "alone": {"settings": {**QUICK, "method": "heurfedamp", "alone": True, "validation": 0.2}},
    "then alone": {"settings": {**HARD, "method": "fedamp", "then_alone": 3}},
    "newcomers": {"settings": {**QUICK, "method": "autoamp", "newcomers": 2, "rounds": 3}},
    "private": {"settings": {**QUICK, "method": "fedamp", "dp_noise": 1.0}},
    "norm": {"settings": {"method": "fedamp", "rounds": 3, "epochs": 1, "batch_size": 5, "absent": 0.4}, "own": True},
    "loop": {"settings": {**HARD, "method": "fedamp", "engine": "loop"}},
    "seldom": {"settings": {**QUICK, "method": "scaffold", "absent": 0.8, "rounds": 6}},  # processes without a client
}
NOT_THE_SAME = {"seconds", "processes", "threads", "rows_why"}


def numbers_in(value, path=""):
    """Yield every number, word and length inside, with its place."""
    if isinstance(value, dict):
        for name in value.keys() - NOT_THE_SAME:
            yield from numbers_in(value[name], f"{path}/{name}")
    elif isinstance(value, list):
        yield f"{path}/length", len(value)
        for i, each in enumerate(value):
            yield from numbers_in(each, f"{path}/{i}")
    else:
        yield path, value


def assert_same_numbers(a: Path, b: Path, tolerance: float = 1e-9) -> None:
    one, two = read_run(a), read_run(b)
    assert one.config == two.config
    for ours, theirs in ((one.lines, two.lines), (one.result, two.result)):
        first, second = dict(numbers_in(ours)), dict(numbers_in(theirs))
        assert first.keys() == second.keys()
        for place, value in first.items():
            if isinstance(value, float) and math.isfinite(value):
                assert second[place] == pytest.approx(value, rel=tolerance, abs=tolerance), place
            else:
                assert second[place] == value, place
    for name in ("models", "best", "xi", "state"):
        files = [folder / f"{name}.safetensors" for folder in (a, b)]
        assert files[0].exists() == files[1].exists(), name
        if files[0].exists():
            ours, theirs = map(load_file, files)
            assert ours.keys() == theirs.keys()
            for key, tensor in ours.items():
                assert tensor.dtype == theirs[key].dtype
                near = tolerance if tensor.dtype == torch.float64 else 1e-6 * bool(tolerance)
                torch.testing.assert_close(theirs[key], tensor, rtol=near, atol=near)
    assert sorted(path.name for path in a.iterdir()) == sorted(path.name for path in b.iterdir())


def jobs_for(methods):
    return {name: {"settings": {**HARD, "method": name}} for name in methods}


def check(jobs, size, folder):
    """Play jobs in one process and in several, and compare."""
    play(size, [{"out": f"many/{name}", **job} for name, job in jobs.items()], folder)
    for name, job in jobs.items():
        play_job(folder / "one" / name, **job)
        assert_same_numbers(folder / "one" / name, folder / "many" / name)
        facts = json.loads((folder / "many" / name / "result.json").read_text())["facts"]
        assert facts["processes"] == size


def test_two_processes_give_the_numbers_of_one(tmp_path):
    check(jobs_for(FAST), 2, tmp_path)


@pytest.mark.many
def test_two_processes_give_the_numbers_of_one_for_every_method(tmp_path):
    check(jobs_for(name for name in ALL if name not in FAST), 2, tmp_path)


@pytest.mark.many
@pytest.mark.parametrize("size", [2, 3])
def test_whatever_a_run_is_asked_for(size, tmp_path):
    check(SCENARIOS, size, tmp_path)


@pytest.mark.many
def test_three_processes_with_unequal_shares(tmp_path):
    check(jobs_for(FAST), 3, tmp_path)


@pytest.mark.many
def test_one_client_at_a_time_is_bit_for_bit_the_same(tmp_path):
    """Products that fit one block are not shared, and a client that is trained alone has no neighbours."""
    jobs = {
        name: {"settings": {**HARD, "method": name, "engine": "loop", "alone": True}, "cut": False}
        for name in ("fedamp", "autoamp", "scaffold")
    }
    play(2, [{"out": f"many/{name}", **job} for name, job in jobs.items()], tmp_path)
    for name, job in jobs.items():
        play_job(tmp_path / "one" / name, **job)
        assert_same_numbers(tmp_path / "one" / name, tmp_path / "many" / name, tolerance=0)


@pytest.mark.many
def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    """From two to three, from one to two, from two to one: each time from the last checkpoint."""
    settings = {**HARD, "method": "apfl", "rounds": 6}
    play(2, [{"out": name, "settings": settings, "stop": 3} for name in ("to-three", "to-one")], tmp_path)
    play_job(tmp_path / "to-two", settings, stop=3)
    for name in ("to-three", "to-one", "to-two"):
        assert read_run(tmp_path / name).lines[-1]["round"] == 3
        assert list((tmp_path / name).glob("checkpoint-*3.safetensors"))
    play(3, [{"out": "to-three", "settings": settings}], tmp_path)
    play(2, [{"out": "to-two", "settings": settings}], tmp_path)
    play_job(tmp_path / "to-one", settings)
    play_job(tmp_path / "whole", settings)
    for name in ("to-three", "to-one", "to-two"):
        assert_same_numbers(tmp_path / "whole", tmp_path / name)
