"""One process at a time writes to a run's folder: the rounds of two would be mixed in one record."""

import itertools
import json
import signal
import subprocess
import sys

import pytest

import fedamp
import fedamp.records.folder
from fedamp.errors import UserError
from fedamp.files import held
from fedamp.records.reading import LINES, read_run

QUICK = {"clients": 5, "rounds": 2, "epochs": 1, "method": "fedavg"}


def test_a_second_process_is_refused_and_writes_nothing(tmp_path):
    (tmp_path / "run").mkdir()
    with held(tmp_path / "run") as free:
        assert free
        with pytest.raises(UserError, match=r"another process is playing in .*run; wait until it ends"):
            fedamp.run(out=tmp_path / "run", **QUICK)
        assert not list((tmp_path / "run").iterdir())
    assert fedamp.run(out=tmp_path / "run", **QUICK).finished
    assert {path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".")} == set()


def test_a_finished_run_can_be_read_meanwhile(tmp_path):
    made = fedamp.run(out=tmp_path, **QUICK)
    with held(tmp_path):
        assert fedamp.run(out=tmp_path, **QUICK).history == made.history


def test_a_run_that_another_process_has_finished_in_the_meantime_is_read(tmp_path, monkeypatch):
    made = fedamp.run(out=tmp_path, **QUICK)
    folder = fedamp.records.folder.RunFolder
    answers, finished = iter([None]), folder.finished
    monkeypatch.setattr(folder, "finished", lambda self, config: next(answers, finished(self, config)))
    monkeypatch.setattr(folder, "begin", lambda *_: pytest.fail("it began anew"))
    assert fedamp.run(out=tmp_path, **QUICK).history == made.history


def test_a_comparison_is_held_as_a_whole(tmp_path):
    small = {name: value for name, value in QUICK.items() if name != "method"}
    tmp_path.joinpath("them").mkdir()
    with held(tmp_path / "them"), pytest.raises(UserError, match="another process is playing in"):
        fedamp.compare(["fedavg", "fedamp"], out=tmp_path / "them", **small)
    assert not list(tmp_path.joinpath("them").iterdir())  # its plan is not added to the other's
    assert fedamp.compare(["fedavg", "fedamp"], out=tmp_path / "them", **small).results["fedamp"][0].finished


def test_the_folder_is_let_go_with_the_process_however_that_ends(tmp_path):
    code = "import sys, time; from pathlib import Path; from fedamp.files import held\n"
    code += "with held(Path(sys.argv[1])) as free: print(free, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "True\n"
            with held(tmp_path) as free:
                assert not free
        finally:
            other.send_signal(signal.SIGKILL)
    with held(tmp_path) as free:
        assert free


def test_rounds_that_two_processes_have_mixed_are_not_read(tmp_path):
    fedamp.run(out=tmp_path, **QUICK)
    lines = (tmp_path / LINES).read_text().splitlines()
    for mixed in ([*lines[:2], *lines[1:]], [lines[1], lines[0], *lines[2:]]):
        (tmp_path / LINES).write_text("\n".join(mixed) + "\n")
        first = next(a for a, b in itertools.pairwise(mixed) if _round(b) != _round(a) + 1)
        with pytest.raises(UserError, match=rf"after round {_round(first)}; the folder is damaged"):
            read_run(tmp_path)


def _round(line):
    return json.loads(line)["round"]
