"""`--rows`: a run with rows on the host or on disk is the run with rows where they are trained, bit for bit."""

import errno
import json
import os
import subprocess
import sys
import weakref
from collections import Counter
from pathlib import Path

import pytest
import torch

import fedamp
from far_device import FAR, far_device
from fedamp import row_store
from fedamp.config import RunConfig
from fedamp.methods import METHODS, FedAvg, make_method
from fedamp.row_store import CPU, DEVICE, DISK, HOST, RowStore
from fedamp.rows import Rows
from fedamp.runs import client_half
from fedamp.runs.memory import counted, needs, placing
from fedamp.runs.setup import assemble
from fedamp.training import stacked_or_loop

QUICK = {"clients": 7, "rounds": 3, "epochs": 1, "model": "mlp", "progress": False}
SOME = ("fedavg", "fedamp", "autoamp", "scaffold")
OTHERS = [pytest.param(name, marks=pytest.mark.many) for name in METHODS if name not in SOME]
USUALLY = {"absent": 0.3}
RARELY = {"absent": 0.3, "validation": 0.2, "alone": True, "poisoned": (1,), "init": "own"}


@pytest.fixture(autouse=True)
def two_at_once(monkeypatch):
    """Let two clients be trained at once, and let every stack be worth a file."""
    monkeypatch.setattr(stacked_or_loop, "LOOP_VALUES", 2 * 4810 + 1)
    monkeypatch.setattr(stacked_or_loop, "STACK_VALUES", 2 * 100 * 64)  # a minibatch has more values than parameters
    monkeypatch.setattr(row_store, "SMALL", 0)


def assert_same(one, two):
    """The same lines, and the same models bit for bit."""
    ours, theirs = (
        [{key: value for key, value in line.items() if key != "seconds"} for line in each.history]
        for each in (one, two)
    )
    assert ours == theirs
    assert one.models.keys() == two.models.keys()
    for name, rows in one.models.items():
        assert torch.equal(rows.params, two.models[name].params)
        assert torch.equal(rows.buffers, two.models[name].buffers)


@pytest.mark.parametrize("settings", [USUALLY, pytest.param(RARELY, marks=pytest.mark.many)], ids=["usual", "rare"])
@pytest.mark.parametrize("name", [*SOME, *OTHERS])
def test_host_and_disk_are_the_device_bit_for_bit(name, settings, tmp_path):
    settings = {**QUICK, **settings, "method": name}
    if name == "autoamp":  # whoever probes later than the others trains on another half, and so in another chunk
        settings |= {"absent": 0.0, "poisoned": ()}
    usual = fedamp.run(**settings, rows=DEVICE)
    assert_same(fedamp.run(**settings, rows=HOST), usual)
    assert_same(fedamp.run(**settings, rows=DISK, out=tmp_path / "run"), usual)


@pytest.mark.parametrize(
    "settings",
    [
        {"engine": "loop"},
        {"dp_noise": 1.0, "batch_size": 20, "rounds": 1},
        {"validation": 0.2, "then_alone": 2, "rounds": 2},
    ],
    ids=["loop", "private", "then alone"],
)
def test_other_ways_of_training_are_the_same_too(settings):
    settings = {**QUICK, **settings, "method": "fedamp"}
    usual, host = (fedamp.run(**settings, rows=place) for place in (DEVICE, HOST))
    assert_same(host, usual)
    assert host.then_alone == usual.then_alone
    assert host.taken is usual.taken is None or torch.equal(host.taken.params, usual.taken.params)


@pytest.mark.parametrize(
    "name", ["autoamp", *(pytest.param(n, marks=pytest.mark.many) for n in METHODS if n != "autoamp")]
)
def test_rows_on_a_host_meet_the_device_only_where_they_were_moved(name, monkeypatch):
    settings = {**QUICK, "method": name, "rows": HOST, "engine": "stacked", "rounds": 2, "epochs": None, "steps": 2}
    usual = fedamp.run(**settings)
    monkeypatch.setattr("fedamp.runs.setup.device_of", lambda name: FAR)
    monkeypatch.setattr(row_store, "PIECE", 4810 * 2)
    with far_device():
        far = fedamp.run(**settings)
    assert far.facts.device == "meta"
    for entry, rows in usual.models.items():
        assert far.models[entry].params.device == CPU
        torch.testing.assert_close(far.models[entry].params, rows.params, rtol=0, atol=1e-6)


@pytest.mark.parametrize("stays", [DEVICE, DISK])
def test_a_run_goes_on_with_rows_elsewhere(stays, tmp_path):
    """It is the same run, in the same folder; what was chosen is a fact of the machine."""
    settings = {**QUICK, "method": "fedamp", "rounds": 4}
    other = DISK if stays == DEVICE else DEVICE
    whole = fedamp.run(**settings, rows=stays)
    fedamp.run(**settings, rows=stays, out=tmp_path, on_round=lambda line: line.round < 2)
    ended = fedamp.run(**settings, rows=other, out=tmp_path)
    assert_same(ended, whole)
    assert ended.facts.rows_in == other
    assert "rows" not in json.loads((tmp_path / "description.json").read_text())


def test_files_are_in_the_runs_folder_and_gone_after_an_error(tmp_path, monkeypatch):
    folders = Counter()

    def noted(shape, dtype, folder):
        folders[folder] += 1
        return in_a_file(shape, dtype, folder)

    in_a_file = row_store.in_a_file
    monkeypatch.setattr(row_store, "in_a_file", noted)

    def fail(line):
        assert folders.keys() == {tmp_path / "run"}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fedamp.run(**QUICK, method="fedamp", rows=DISK, out=tmp_path / "run", on_round=fail)
    kept = {path.name.split("-")[0] for path in (tmp_path / "run").iterdir()}
    assert kept == {"description.json", "inputs.json", "rounds.jsonl", "checkpoint"}


def test_a_full_disk_is_one_line(fedamp_command, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    code, _, err = fedamp_command("run", "--clients", "5", "--rounds", "1", "--rows", "disk")
    assert code == 2
    assert "No space left on device" in err
    assert "--out" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("name", "stacks"), [("fedavg", 2), ("fedamp", 3), ("autoamp", 5), ("scaffold", 5)])
def test_how_many_stacks_are_there_at_once(name, stacks, monkeypatch):
    """Made by the engine: an old and a new model, FedAMP's message, AutoAMP's half models. No fewer are counted."""
    alive = most = 0
    d, empty = 4810, RowStore.empty

    def left():
        nonlocal alive
        alive -= 1

    def made(self, shape, dtype):
        nonlocal alive, most
        stack = empty(self, shape, dtype)
        if shape == (7, d):
            alive += 1
            most = max(most, alive)
            weakref.finalize(stack.untyped_storage(), left)
        return stack

    monkeypatch.setattr(RowStore, "empty", made)
    result = fedamp.run(**{**QUICK, "rounds": 5}, method=name, rows=HOST)
    assert result.facts.parameters == d
    assert most == stacks
    w = Rows.of(torch.zeros(7, d))
    assert stacks <= counted.kept_apart(make_method(name), w) // (7 * d * 4)


def test_a_chunk_that_does_not_fit_is_halved_and_leaves_no_trace(monkeypatch):
    settings = {**QUICK, "rounds": 2, "epochs": None, "steps": 2, "engine": "loop", "dp_noise": 1.0, "batch_size": 20}
    usual = fedamp.run(**settings, method="fedavg")
    tried = []

    class Large(FedAvg):
        def client_update(self, state, message, local):
            made = super().client_update(state, message, local)
            tried.append(len(message["w"]))
            if len(message["w"]) > 1:
                raise torch.OutOfMemoryError("no")
            return made

    result = fedamp.run(**settings, method=Large(), rows=HOST)
    assert tried == [2] + [1] * 14
    assert [line["epsilon"] for line in result.history[1:-1]] == [line["epsilon"] for line in usual.history[1:-1]]
    assert torch.equal(result.models["own"].params, usual.models["own"].params)
    assert any("did not fit" in warning for warning in result.warnings)


def test_entries_that_are_one_share_a_stack_until_they_differ():
    made = client_half._Gathered(RowStore(CPU, HOST), 4)
    one, two, three = (Rows.of(torch.randn(2, 3)) for _ in range(3))
    made.write(torch.tensor([3, 0]), {("state", "w"): one, ("reply", "w"): one})
    assert made.of("state")["w"] is made.of("reply")["w"]
    made.write(torch.tensor([1, 2]), {("state", "w"): two, ("reply", "w"): three})
    state, reply = made.of("state")["w"].params, made.of("reply")["w"].params
    assert torch.equal(state, torch.stack([one.params[1], two.params[0], two.params[1], one.params[0]]))
    assert torch.equal(reply, torch.stack([one.params[1], three.params[0], three.params[1], one.params[0]]))


def free(monkeypatch, device, host):
    """Let so many stacks of all rows be free."""
    stack = 7 * 4810 * 4
    monkeypatch.setattr(placing, "free_memory", lambda on: stack * (host if on == CPU else device))


@pytest.mark.parametrize(("device", "host", "place"), [(100, 0, DEVICE), (10, 0, DEVICE), (8, 4, HOST), (8, 3.3, DISK)])
def test_auto_is_the_first_place_that_has_room(device, host, place, monkeypatch):
    """FedAMP takes 6 stacks by count, and two clients that train 12 rows; apart it keeps 3. ROOM is 0.85."""
    monkeypatch.setattr("fedamp.runs.setup.device_of", lambda name: FAR)
    free(monkeypatch, device, host)
    with far_device():
        setup = assemble(RunConfig(clients=7, model="mlp", method="fedamp", engine="stacked"))
    assert setup.store == RowStore(FAR, place)
    assert setup.facts.rows_in == place
    assert ("GiB are free on meta" in setup.facts.rows_why) == (place != DEVICE)
    assert setup.w.params.device == (FAR if place == DEVICE else CPU)


def test_auto_on_a_cpu_has_no_second_memory(monkeypatch):
    free(monkeypatch, 0, 5)
    result = fedamp.run(**QUICK, method="fedamp")
    assert result.facts.rows_in == DISK
    free(monkeypatch, 0, 500)
    assert fedamp.run(**QUICK, method="fedamp").facts.rows_in == DEVICE


def test_a_method_that_can_not_be_asked_is_taken_for_a_usual_one(monkeypatch):
    class Curious(FedAvg):
        def server_init(self, w):
            assert float(w.params.sum()) != 0
            return super().server_init(w)

    free(monkeypatch, 0, 12)
    setup = assemble(RunConfig(clients=7, model="mlp"), method=Curious())
    assert setup.store.place == DEVICE


@pytest.mark.parametrize("place", [DEVICE, HOST, DISK])
def test_a_dry_run_says_where_rows_are_kept(place, fedamp_command):
    flags = ["run", "--clients", "7", "--model", "mlp", "--method", "fedamp", "--rounds", "1", "--dry-run"]
    code, out, err = fedamp_command(*flags, "--rows", place)
    assert code == 0, err
    assert f"rows        on {needs.PLACES[place]}: asked for" in out
    assert ("GiB are free there" in out) == (place == DISK)


def test_both_memories_are_told(fedamp_command, monkeypatch):
    monkeypatch.setattr("fedamp.runs.setup.device_of", lambda name: FAR)
    monkeypatch.setattr(needs, "free_memory", lambda on: 1 << 40 if on == FAR else 1000)
    flags = ["run", "--clients", "7", "--model", "mlp", "--method", "fedamp", "--engine", "stacked", "--dry-run"]
    with far_device():
        _, out, _ = fedamp_command(*flags, "--rows", "host")
        _, found, _ = fedamp_command(*flags, "--rows", "host", "--json")
    need = json.loads(found)
    stack = 7 * 4810 * 4
    assert need["apart"] // stack == 3
    assert need["models"] == 2 * (6 * 4810 * 4 + 16), "of the two clients that are trained at once"
    assert not need["fits"]
    assert "on the host, and 0.0 GiB are free there; keep them on disk (--rows disk)" in out


LIMITED = """
import resource, sys
from pathlib import Path
import torch, fedamp, fedamp.rows
from fedamp.errors import UserError
from fedamp.training import stacked_or_loop

torch.set_num_threads(1)
fedamp.rows.BLOCK, hidden, m = 1 << 18, 4000, 100
stack = m * 4 * (75 * hidden + 10)
stacked_or_loop.LOOP_VALUES = 2 * 75 * hidden
settings = {"method": "fedamp", "setting": "iid", "steps": 1, "progress": False, "engine": "loop", "rows": sys.argv[1]}
fedamp.run(clients=5, rounds=1, **settings)  # what is loaded on the way is there
lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
limit = int(lines["VmData"].split()[0]) * 1024 + int(float(sys.argv[2]) * stack)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    fedamp.run(clients=m, rounds=2, model={"name": "mlp", "hidden": hidden}, **settings)
    print("it fits")
except UserError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell how much a process holds")
@pytest.mark.parametrize(
    ("place", "stacks", "end"), [(HOST, 2.5, "--rows disk"), (HOST, 3.7, "fits"), (DISK, 0.7, "fits")]
)
def test_memory_of_its_own_is_what_is_limited(place, stacks, end):
    """FedAMP holds three stacks of 115 MiB; in files they are not the process's own."""
    command = [sys.executable, "-c", LIMITED, place, str(stacks)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert end in done.stdout.splitlines()[-1]
