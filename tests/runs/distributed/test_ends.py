"""How several processes end: together, with one line, and so that the same command goes on."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

import fedamp
from fedamp.ranks.team import SAME
from fedamp.records.reading import LINES, read_lines, read_run
from runs.distributed.processes import command, ended, environment, free_port, start
from runs.distributed.test_same_numbers import assert_same_numbers

LONG = ["run", "--clients", "6", "--model", "mlp", "--epochs", "3", "--method", "fedavg", "--device", "cpu", "--out"]

HIDDEN, SHOWN = b"\x1b[?25l", b"\x1b[?25h"
"""What hides a terminal's cursor, and shows it again."""

pytestmark = pytest.mark.slow


def under_way(folder, rounds=2):
    """Wait until some rounds are written down."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if (folder / LINES).exists() and len(read_lines(folder / LINES)) > rounds:
            return
        time.sleep(0.05)
    raise AssertionError("no round was played")


def last_words(err):
    """Return the last line that is the program's own; torch and gloo have words of their own."""
    return [line for line in err.splitlines() if line.startswith("fedamp")][-1:]


@pytest.mark.parametrize("dies", [0, 1])
def test_a_process_that_dies_ends_the_others_and_the_command_goes_on(dies, tmp_path):
    processes = start(2, ["-m", "fedamp", *LONG, "run", "--rounds", "400"], tmp_path)
    try:
        under_way(tmp_path / "run")
        os.kill(processes[dies].pid, signal.SIGKILL)
    finally:
        done = ended(processes, timeout=60)
    assert done[dies][0] == -signal.SIGKILL
    code, _, err = done[1 - dies]
    assert code == 2
    (line,) = last_words(err)
    assert "another process of this run has ended" in line
    assert "the same command continues from the last checkpoint" in line
    assert "Traceback" not in err
    saved = max(int(path.stem[11:]) for path in (tmp_path / "run").glob("checkpoint-*.safetensors"))
    assert saved >= 1
    processes = start(2, ["-m", "fedamp", *LONG, "run", "--rounds", "400"], tmp_path)
    try:
        deadline = time.monotonic() + 120
        while len(read_lines(tmp_path / "run" / LINES)) <= saved + 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        for one in processes:
            os.kill(one.pid, signal.SIGINT)
        ended(processes, timeout=60)
    lines = read_lines(tmp_path / "run" / LINES)
    assert [line["round"] for line in lines] == list(range(len(lines)))  # it went on, and left no gap


def test_ctrl_c_ends_all_after_one_round_and_they_go_on(tmp_path):
    processes = start(3, ["-m", "fedamp", *LONG, "run", "--rounds", "400"], tmp_path)
    try:
        under_way(tmp_path / "run")
        os.kill(processes[1].pid, signal.SIGINT)  # torchrun tells all of them; one is enough
    finally:
        done = ended(processes, timeout=60)
    assert [code for code, _, _ in done] == [130] * 3
    assert last_words(done[0][2]) == [
        "fedamp: interrupted; the rounds so far are in run, and the same command continues from there"
    ]
    assert [last_words(err) for _, _, err in done[1:]] == [[], []]
    run = read_run(tmp_path / "run")
    assert not run.finished
    assert run.result["facts"]["processes"] == 3


def test_a_second_ctrl_c_ends_at_once_with_a_line_and_a_cursor(tmp_path):
    words = ["run", "--clients", "6", "--rounds", "9", "--epochs", "20000", "--model", "mlp", "--engine", "loop"]
    port, screen = free_port(), pty.openpty()
    outputs = [{"stdin": screen[1], "stdout": screen[1], "stderr": screen[1]}, {"stderr": subprocess.PIPE}]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "fedamp", *words, "--device", "cpu", "--out", "run"],
            cwd=tmp_path,
            env=environment(rank, 2, port, TERM="xterm"),
            start_new_session=True,
            **outputs[rank],
        )
        for rank in range(2)
    ]
    os.close(screen[1])
    seen, deadline = b"", time.monotonic() + 120
    try:
        while HIDDEN not in seen and time.monotonic() < deadline:  # the bar of the first round
            seen += read_for(screen[0], 0.1)
        for wait in (SAME + 0.6, 5.0):
            time.sleep(1.0)
            os.kill(processes[0].pid, signal.SIGINT)
            seen += read_for(screen[0], wait)
        assert processes[0].wait(timeout=30) == 130, seen.decode()
    finally:
        for one in processes:
            one.poll() is None and one.kill()
        processes[1].communicate()
        os.close(screen[0])
    assert seen.count(SHOWN) == seen.count(HIDDEN) == 1
    last = seen.decode().splitlines()[-1]
    assert last == "fedamp: interrupted within a round; the same command goes on from the last checkpoint"


def read_for(screen, seconds):
    """Return what is written to a terminal in some seconds."""
    seen, until = b"", time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([screen], [], [], left)[0]:
            try:
                seen += os.read(screen, 1 << 16)
            except OSError:  # nobody writes any more
                break
    return seen


def test_torchrun_itself(tmp_path):
    settings = {"clients": 5, "rounds": 3, "epochs": 1, "method": "heurfedamp"}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint"]
    (done,) = ended(start(1, [*launcher, "127.0.0.1:0", "-m", "fedamp", "run", *words, "--out", "run"], tmp_path))
    assert done[0] == 0, done[2]
    assert done[1].count("after the last round") == 1  # one process prints
    fedamp.run(out=tmp_path / "one", **settings)
    assert_same_numbers(tmp_path / "one", tmp_path / "run", tolerance=1e-4)  # float32


def test_a_comparison_is_played_together(tmp_path):
    words = [
        "--clients",
        "5",
        "--rounds",
        "2",
        "--epochs",
        "1",
        "--methods",
        "fedavg,fedavg-ft,fedamp",
        "--out",
        "them",
    ]
    done = command(2, ["compare", *words], tmp_path)
    assert [code for code, _, _ in done] == [0, 0], done[1][2]
    assert "fedavg-ft" in done[0][1]
    assert done[1][1] == ""
    again = command(2, ["resume", "them"], tmp_path)
    assert [code for code, _, _ in again] == [0, 0]
    assert again[0][1].splitlines()[0] == done[0][1].splitlines()[0]
    for name in ("separate", "fedavg", "fedamp"):
        found = json.loads((tmp_path / "them" / f"{name}-seed0" / "result.json").read_text())
        assert found["finished"]
        assert found["facts"]["processes"] == 2


def test_a_finished_run_is_shown_once_and_a_dry_run_is_the_leaders(tmp_path):
    words = ["run", "--clients", "5", "--rounds", "2", "--epochs", "1", "--out", "run"]
    for expected in ("after the last round", "already finished"):
        done = command(2, words, tmp_path)
        assert [code for code, _, _ in done] == [0, 0], done[0][2]
        assert expected in done[0][1]
        assert done[1][1] == ""
    done = command(2, [*words[:-2], "--dry-run"], tmp_path)
    assert [code for code, _, _ in done] == [0, 0]
    assert "2 processes" in done[0][1]
    assert done[1][1] == ""


def test_processes_that_mean_different_runs_are_told(tmp_path):
    words = ["-m", "fedamp", "run", "--clients", "5", "--rounds", "2", "--out", "run", "--seed"]
    done = ended(start(2, [], tmp_path, each=[[*words, "0"], [*words, "1"]]))
    assert [code for code, _, _ in done] == [2, 2]
    (line,) = last_words(done[0][2])
    assert "the configuration of process 1 is not that of process 0" in line
    assert not (tmp_path / "run").exists()
    done = ended(start(2, [], tmp_path, each=[["-m", "fedamp", "resume", "run"], [*words, "1"]]))
    assert {code for code, _, _ in done} == {2}


@pytest.mark.parametrize("theirs", ["fedavg,fedamp", "fedprox"])
def test_processes_that_mean_different_comparisons_are_told(theirs, tmp_path):
    """Not only if the first one has more to play, and before anything is written."""
    words = [
        "-m",
        "fedamp",
        "compare",
        "--clients",
        "5",
        "--rounds",
        "1",
        "--epochs",
        "1",
        "--out",
        "them",
        "--methods",
    ]
    done = ended(start(2, [], tmp_path, each=[[*words, "fedavg"], [*words, theirs]]), timeout=60)
    assert [code for code, _, _ in done] == [2, 2]
    (line,) = last_words(done[0][2])
    assert "the comparison of process 1 is not that of process 0" in line
    assert not (tmp_path / "them").exists()


def test_more_processes_than_clients_and_commands_for_one(tmp_path):
    few = ["run", "--clients", "2", "--setting", "iid", "--rounds", "1"]
    apart = ["run", "--clients", "3", "--setting", "iid", "--rounds", "1", "--rows", "host"]
    refused = {
        "3 processes for 2 clients": few,
        "is for one process": ["list", "methods"],
        "each keeps its rows on its device": apart,
    }
    for expected, words in refused.items():
        done = command(3, words, tmp_path)
        assert [code for code, _, _ in done] == [2, 2, 2]
        assert expected in last_words(done[0][2])[0]
        assert last_words(done[1][2]) == []


@pytest.mark.parametrize("wrong", [["--data", "not-there.csv"], ["--clinets", "5"]])
def test_a_mistake_that_one_process_sees_at_once_ends_all(wrong, tmp_path):
    """Its data are missing, say, or a flag is mistyped on one machine: the others don't wait for it to come."""
    words = ["-m", "fedamp", "run", "--rounds", "2", "--out", "run"]
    done = ended(start(2, [], tmp_path, each=[words, [*words, *wrong]]), timeout=60)  # they would wait for 120 s
    assert [code for code, _, _ in done] == [2, 2]
    assert "its own line says why" in last_words(done[0][2])[0]
    assert "fedamp (process 1 of 2): " in last_words(done[1][2])[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [["rnu"], ["--quick", "run"], ["predict", "run"]])
def test_a_mistaken_command_of_one_process_ends_all(words, tmp_path):
    """They have not met when it is noticed."""
    meant = ["-m", "fedamp", "run", "--rounds", "2", "--out", "run"]
    done = ended(start(2, [], tmp_path, each=[meant, ["-m", "fedamp", *words]]), timeout=60)
    assert [code for code, _, _ in done] == [2, 2]
    assert "another process of this run has ended" in last_words(done[0][2])[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "--clinets", "5"], "--clinets"),
        (["rnu"], "No such command 'rnu'"),
        (["run", "--clients", "0"], "clients is 0"),
        (["run", "--data", "not-there.csv"], "not-there.csv"),
        (["run", "--method", "fedamp", "--set", "method.sigma=-1"], "sigma is -1"),  # when the run is put together
        (["compare", "--methods", "fedavg", "--clients", "2", "--out", "them"], "2 clients are too few"),
        (["compare", "--methods", "fedamp", "--set", "method.sigma=-1", "--out", "them"], "sigma is -1"),
        (["compare", "--methods", "fedampp"], "fedampp"),
    ],
)
def test_a_mistake_that_all_processes_find_is_told_once(words, expected, tmp_path):
    done = command(2, words, tmp_path)
    assert [code for code, _, _ in done] == [2, 2]
    assert expected in last_words(done[0][2])[0]
    assert last_words(done[1][2]) == []


@pytest.mark.parametrize("call", ["run(rounds=2, ", "compare('fedavg', rounds=2, "])
def test_so_does_one_in_a_script(call, tmp_path):
    scripts = [f"import fedamp; fedamp.{call}data={name!r})" for name in ("digits", "not-there.csv")]
    done = ended(start(2, [], tmp_path, each=[["-c", script] for script in scripts]), timeout=60)
    assert "another process of this run has ended" in done[0][2]
    assert "not-there.csv" in done[1][2]


CTRL_C = """
import os, signal, time
import fedamp
from fedamp.ranks.launched import is_leader
from fedamp.ranks.team import leave
from fedamp.runs import loop

settings = dict(clients=8, epochs=1, method="fedavg", device="cpu")

def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)

"""
"""How a script begins that interrupts itself."""


def script_ends(size, script, cwd):
    return ended(start(size, ["-c", CTRL_C + script], cwd), timeout=60)


def test_a_script_that_catches_ctrl_c_can_run_again(tmp_path):
    script = """
try:
    fedamp.run(rounds=9, on_round=lambda line: ctrl_c(), **settings)
except KeyboardInterrupt:
    print("caught")
print(fedamp.run(rounds=2, out="next", **settings).history[-2]["round"])
leave(0)
"""
    done = script_ends(2, script, tmp_path)
    assert [(code, out.split()) for code, out, _ in done] == [(0, ["caught", "2"])] * 2, done[0][2]


def test_ctrl_c_while_newcomers_play_ends_all_and_they_go_on(tmp_path):
    script = """
arriving = loop.arriving

def interrupted(*arguments):
    if not is_leader():
        ctrl_c()
    return arriving(*arguments)

for loop.arriving in (interrupted, arriving):
    try:
        print(fedamp.run(rounds=2, newcomers=2, out="run", **settings).newcomers is not None)
    except KeyboardInterrupt:
        print("caught")
leave(0)
"""
    done = script_ends(2, script, tmp_path)
    assert [(code, out.split()) for code, out, _ in done] == [(0, ["caught", "True"])] * 2, done[0][2]


def test_ctrl_c_that_comes_too_late_for_any_round_is_heard_by_all(tmp_path):
    script = """
conclude = loop.conclude

def interrupted(*arguments):
    if is_leader():
        ctrl_c()
    return conclude(*arguments)

loop.conclude = interrupted
try:
    fedamp.run(rounds=2, out="run", **settings)
except KeyboardInterrupt:
    print("caught")
leave(0)
"""
    done = script_ends(2, script, tmp_path)
    assert [(code, out.split()) for code, out, _ in done] == [(0, ["caught"])] * 2, done[0][2]
    assert read_run(tmp_path / "run").finished


def test_a_second_ctrl_c_ends_at_once(tmp_path):
    script = """
def twice(line):
    ctrl_c()
    ctrl_c()  # the same one again, from the terminal and from torchrun
    print("waiting", flush=True)
    time.sleep(1.2)
    ctrl_c()
    print("never")

fedamp.run(rounds=9, out="run", on_round=twice, **settings)
"""
    done = script_ends(2, script, tmp_path)
    assert done[0][:2] == (130, "waiting\n")
    assert done[1][0] != 0
    assert len(read_lines(tmp_path / "run" / LINES)) == 2


@pytest.mark.parametrize("what", ["KeyboardInterrupt", "SystemExit(3)", "ValueError('a fault')"])
def test_whatever_a_callback_raises_all_hear_of_it_and_go_on(what, tmp_path):
    script = f"""
def on_round(line):
    if line.round == 2:
        raise {what}

for ending in (on_round, None):
    try:
        print(len(fedamp.run(rounds=3, out="run", on_round=ending, **settings).history))
    except BaseException as problem:
        print(type(problem).__name__)
leave(0)
"""
    done = script_ends(2, script, tmp_path)
    raised = what.partition("(")[0]
    heard = raised if raised == "KeyboardInterrupt" else "SharedError"
    assert [(code, out.split()) for code, out, _ in done] == [(0, [raised, "5"]), (0, [heard, "5"])], done[1][2]


def test_nobody_goes_on_before_the_record_is_written(tmp_path):
    """Not even if the first process takes its time; and if it can't, all are told."""
    script = """
from pathlib import Path
from fedamp.errors import UserError
from fedamp.records.folder import RunFolder
from fedamp.ranks.team import SAME
from fedamp.records.reading import read_run

finish = RunFolder.finish

def slowly(*arguments, **named):
    time.sleep(1)
    finish(*arguments, **named)

def full(*arguments, **named):
    raise UserError("no space left")

RunFolder.finish = slowly
fedamp.run(rounds=1, out="run", **settings)
print(read_run(Path("run")).finished)
RunFolder.finish = full
try:
    fedamp.run(rounds=1, out="other", **settings)
except UserError as problem:
    print("no space left" in str(problem))
leave(0)
"""
    done = script_ends(2, script, tmp_path)
    assert [(code, out.split()) for code, out, _ in done] == [(0, ["True", "True"])] * 2, done[1][2]
