"""A run that is killed at any moment goes on and ends as if it never had been."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import fedamp
from fedamp.config import RunConfig
from fedamp.methods.fedprox import FedProx
from fedamp.records import checkpoints
from fedamp.records.checkpoints import Checkpoint, Pace, load_checkpoint, save_checkpoint
from fedamp.records.folder import RunFolder
from fedamp.records.reading import INPUTS, read_run
from fedamp.records.tensor_file import write_tensors
from fedamp.runs.loop import play
from fedamp.runs.setup import assemble
from helpers import SOME_AT_ONCE, Federation, assert_states_equal, mlp

QUICK = {"rounds": 6, "epochs": 1, "clients": 10}


def without_time(lines):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def assert_same_run(a: Path, b: Path) -> None:
    """Bit for bit, but for the seconds that were measured."""
    one, two = read_run(a), read_run(b)
    assert one.config == two.config
    assert without_time(one.lines) == without_time(two.lines)
    for name in one.result:
        if name != "seconds":
            assert one.result[name] == two.result[name], name
    for name in ("models.safetensors", "xi.safetensors"):
        assert (a / name).exists() == (b / name).exists()
        if (a / name).exists():
            ours, theirs = load_file(a / name), load_file(b / name)
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert sorted(p.name for p in a.iterdir()) == sorted(p.name for p in b.iterdir())


class StopHere(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("name", SOME_AT_ONCE)
@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.many
def test_every_method_goes_on(name, after, tmp_path):
    """Broken off after a round's line, before or after its checkpoint; with absent clients and own first models."""
    settings = {"method": name, "absent": 0.3, "init": "own", "validation": 0.2, **QUICK}

    def stop(line):
        if line["round"] == after:
            raise StopHere

    fedamp.run(out=tmp_path / "whole", **settings)
    with pytest.raises(StopHere):
        fedamp.run(out=tmp_path / "broken", observer=stop, **settings)
    fedamp.run(out=tmp_path / "broken", **settings)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize("name", SOME_AT_ONCE)
def test_a_checkpoint_holds_the_whole_state(name, tmp_path):
    a = Federation.of(name, module=mlp(norm=True, dropout=0.2), own_init=True).play(2)
    save_checkpoint(tmp_path, Checkpoint(2, a.server, a.state, None, {"threads": 1}))
    loaded = load_checkpoint(tmp_path, torch.device("cpu"))
    assert_states_equal(loaded.server, a.server)
    assert_states_equal(loaded.clients, a.state)
    assert (loaded.k, loaded.how, loaded.xi) == (2, {"threads": 1}, None)


def test_the_last_two_are_kept_and_a_damaged_one_is_passed_over(tmp_path):
    a = Federation.of("fedamp").play()
    for k in (1, 2, 3, 10):
        save_checkpoint(tmp_path, Checkpoint(k, a.server, a.state, torch.zeros(k, 4, 4), {}))
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "checkpoint-0000003.safetensors",
        "checkpoint-0000010.safetensors",
    ]
    newest = tmp_path / "checkpoint-0000010.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    assert load_checkpoint(tmp_path, torch.device("cpu")).k == 3
    newest.write_bytes(b"rubbish")
    assert load_checkpoint(tmp_path, torch.device("cpu")).k == 3


def test_checkpoints_take_a_twentieth_of_the_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: clock[0])
    pace, spent = Pace(last=0.0), 0.0
    for _ in range(1000):  # rounds of one second, checkpoints of three
        clock[0] += 1.0
        if pace.due():
            with pace.timed():
                clock[0] += 3.0
            spent += 3.0
    assert 0.03 < spent / clock[0] <= 0.052


def test_a_full_disk_ends_the_run_with_a_word_and_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    fedamp.run(out=whole, **QUICK)
    real, calls = os.fsync, [0]

    def full(number):
        calls[0] += 1
        if calls[0] > 12:
            raise OSError(28, "No space left on device")
        return real(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"No space left on device; .* give the same command again"):
        fedamp.run(out=tmp_path / "broken", **QUICK)
    monkeypatch.setattr(os, "fsync", real)
    assert load_checkpoint(tmp_path / "broken", torch.device("cpu")).k >= 1
    assert not [path for path in (tmp_path / "broken").iterdir() if path.name.endswith(".part")]
    fedamp.run(out=tmp_path / "broken", **QUICK)
    assert_same_run(whole, tmp_path / "broken")


def test_it_goes_on_the_way_it_was_begun(tmp_path):
    """A folder begun one client at a time goes on so, though auto would stack here."""
    config = RunConfig(**QUICK)
    setup = assemble(config)
    looped = assemble(RunConfig(**QUICK, engine="loop"))

    def stop(line):
        if line["round"] == 3:
            raise StopHere

    folder = RunFolder(tmp_path / "broken")
    with pytest.raises(StopHere):
        play(config, looped, folder, stop)
    play(config, setup, folder)
    play(config, looped, RunFolder(tmp_path / "whole"))
    ours, theirs = (load_file(tmp_path / name / "models.safetensors") for name in ("broken", "whole"))
    assert torch.equal(ours["own.params"], theirs["own.params"])


KILLED = {
    "scaffold": ["--method", "scaffold", "--rounds", "40", "--absent", "0.2"],
    "fedamp": ["--method", "fedamp", "--rounds", "40", "--set", "method.form=gradient", "--set", "method.sigma=20"],
}


def start(arguments, cwd):
    command = [sys.executable, "-m", "fedamp", "run", "--epochs", "1", "--clients", "10", *arguments, "--out", "run"]
    return subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_killed_at_random_moments(name, tmp_path):
    """SIGKILL, 20 times for each of the two: in training, evaluation, checkpoint writing, wherever it is."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    process = start(KILLED[name], tmp_path / "whole")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    draws, kills, deadline = random.Random(name), 0, time.monotonic() + 400
    folder = tmp_path / "broken" / "run"
    while kills < 20:
        assert time.monotonic() < deadline
        process = start(KILLED[name], tmp_path / "broken")
        try:
            # Importing torch takes seconds in which nothing happens: wait until the run has touched its folder.
            before = _touched(folder)
            while process.poll() is None and _touched(folder) == before and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(draws.uniform(0, 0.08))
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
        finally:
            process.kill()
            process.wait(timeout=30)
            process.stderr.close()
        if (folder / "result.json").exists():  # came to its end before we were quick enough: begin another
            assert_same_run(tmp_path / "whole" / "run", folder)
            for path in folder.iterdir():
                path.unlink()
    process = start(KILLED[name], tmp_path / "broken")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    for part in folder.glob(".*.part"):  # a file that was being written when the axe fell
        part.unlink()
    assert_same_run(tmp_path / "whole" / "run", folder)


def _touched(folder: Path) -> int:
    try:
        return max((path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]), default=0)
    except FileNotFoundError:
        return 0


def test_best_models_of_an_earlier_versions_checkpoint_are_scored_again(tmp_path):
    """It had the mean over the clients in place of the score on all held-out samples: the two do not compare."""
    settings = {"method": "fedamp", "validation": 0.3, **QUICK}

    def stop(line):
        if line["round"] == 2:
            raise StopHere

    fedamp.run(out=tmp_path / "whole", **settings)
    with pytest.raises(StopHere):
        fedamp.run(out=tmp_path / "broken", observer=stop, **settings)
    path = tmp_path / "broken" / "checkpoint-0000002.safetensors"
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["fedamp"])
    assert header["best"].keys() == {"own", "received", "between", "chosen", "at home"}
    header["best"] = {entry: [k, 0.99] for entry, (k, *_) in header["best"].items()}
    write_tensors(path, load_file(path), {"fedamp": json.dumps(header)})
    fedamp.run(out=tmp_path / "broken", **settings)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_killed_before_its_description_was_written(tmp_path):
    """The same command goes on; beside a file of somebody else it does not."""
    here = tmp_path / "run"
    fedamp.run(**QUICK, out=tmp_path / "whole")
    here.mkdir()
    shutil.copy(tmp_path / "whole" / INPUTS, here)
    (here / "thesis.txt").write_text("three years of work")
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        fedamp.run(**QUICK, out=here)
    (here / "thesis.txt").unlink()
    fedamp.run(**QUICK, out=here)
    assert_same_run(tmp_path / "whole", here)


@pytest.mark.parametrize("name", ["schema.json", "inputs.json"])
def test_somebody_elses_file_that_is_called_like_ours_stays(tmp_path, name):
    """Only the digests are written before the description; a schema there was written by hand."""
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        fedamp.run(**QUICK, out=tmp_path)
    assert (tmp_path / name).read_text() == '{"mine": 1}'


def test_the_rest_of_a_checkpoint_that_was_not_written_to_its_end_goes(tmp_path):
    left = tmp_path / ".checkpoint-0000003.safetensors.part"
    left.write_bytes(b"half")
    (tmp_path / ".mine.part").write_text("somebody else's")
    fedamp.run(**QUICK, out=tmp_path)
    assert not left.exists()
    assert (tmp_path / ".mine.part").exists()


def test_resume_command(tmp_path, monkeypatch, capsys):
    from fedamp.cli.main import main

    monkeypatch.chdir(tmp_path)
    fedamp.run(out="whole", **QUICK)

    def stop(line):
        if line["round"] == 3:
            raise StopHere

    with pytest.raises(StopHere):
        fedamp.run(out="broken", observer=stop, **QUICK)
    monkeypatch.setattr(sys, "argv", ["fedamp", "resume", "broken", "--json"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert not exit_.value.code
    assert json.loads(capsys.readouterr().out)["finished"]
    assert_same_run(Path("whole"), Path("broken"))
    monkeypatch.setattr(sys, "argv", ["fedamp", "resume", "nowhere"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    assert "there is no folder nowhere" in capsys.readouterr().err


def linear(input_shape, num_outputs):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, num_outputs))


class Mine(FedProx):
    """A method that has no name on the command line."""


HANDED_OVER = {
    "the data of here": lambda: {"clients": [(torch.randn(20, 3), torch.arange(20) % 2)] * 2},
    "the model (linear) of here": lambda: {"data": "digits", "model": linear},
    "the method (mine) of here": lambda: {"data": "digits", "method": Mine()},
    "the data and model (Linear) of here": lambda: {
        "clients": [(torch.randn(20, 3), torch.arange(20) % 2)] * 2,
        "model": torch.nn.Linear(3, 2),
    },
}


@pytest.mark.parametrize("what", HANDED_OVER)
def test_what_came_from_python_is_continued_there(fedamp_command, what):
    fedamp.run(**HANDED_OVER[what](), rounds=3, steps=2, out="here", on_round=lambda line: False)
    code, out, err = fedamp_command("resume", "here")
    assert (code, out) == (2, "")
    assert err == f"fedamp: {what} came from Python; continue there, with the same fedamp.run(..., out='here')\n"


@pytest.mark.parametrize("what", HANDED_OVER)
def test_a_finished_run_of_what_came_from_python_is_shown(fedamp_command, what):
    fedamp.run(**HANDED_OVER[what](), rounds=1, steps=2, out="here")
    code, out, err = fedamp_command("resume", "here", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["finished"]


def test_a_finished_run_of_data_from_python_is_shown(fedamp_command):
    data = [(torch.randn(20, 3), torch.arange(20) % 2)] * 2
    fedamp.run(clients=data, rounds=1, steps=2, out="run")
    code, out, err = fedamp_command("resume", "run", "--json")
    assert (code, json.loads(out)["finished"]) == (0, True), err
    fedamp.compare("fedavg", clients=data, rounds=1, steps=2, out="compared")
    code, _, err = fedamp_command("resume", "compared")
    assert (code, "with the same fedamp.compare(..., out='compared')" in err) == (2, True)
