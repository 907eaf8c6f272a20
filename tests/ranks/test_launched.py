"""What a process is told by torchrun, and what it makes of it."""

import pytest

import fedamp
from fedamp.cli.terminal import fail
from fedamp.config import RunConfig
from fedamp.errors import UserError
from fedamp.ranks import launched as told
from fedamp.ranks import team as meeting
from fedamp.ranks.team import team
from fedamp.runs.audit import audit
from fedamp.runs.parts import device_of

TWO = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "x",
    "MASTER_PORT": "1",
}


@pytest.fixture(autouse=True)
def told_anew(monkeypatch):
    for name in TWO:
        monkeypatch.delenv(name, raising=False)
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget():
    """Let the next one who asks look at the environment again."""
    told.launched.cache_clear()
    team.cache_clear()


@pytest.fixture
def second_of_two(monkeypatch):
    for name, value in TWO.items():
        monkeypatch.setenv(name, value)


def test_alone():
    assert told.launched() is None
    assert told.is_leader()


def test_one_process_of_torchrun_is_alone(monkeypatch, second_of_two):
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert told.launched() is None


def test_one_of_two(second_of_two):
    assert told.launched() == told.Launched(1, 2, 1, 2)
    assert told.launched().words == "process 1 of 2"
    assert not told.is_leader()


@pytest.mark.parametrize(("name", "value"), [("RANK", "2"), ("RANK", "first"), ("WORLD_SIZE", "many")])
def test_an_environment_that_is_no_torchruns(name, value, monkeypatch, second_of_two):
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=name):
        told.launched()


def test_patience(monkeypatch):
    assert told.patience() == told.PATIENCE
    monkeypatch.setenv("FEDAMP_RANK_TIMEOUT", "7.5")
    assert told.patience() == 7.5
    for wrong in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("FEDAMP_RANK_TIMEOUT", wrong)
        with pytest.raises(UserError, match="FEDAMP_RANK_TIMEOUT"):
            told.patience()


@pytest.mark.parametrize(("said", "cores", "processes", "expected"), [
    (None, 8, 2, 4), ("1", 8, 2, 4), ("3", 8, 2, None), ("1", 2, 4, 1), ("1", 7, 2, 3),
])  # fmt: skip
def test_each_has_its_share_of_the_cores(said, cores, processes, expected, monkeypatch):
    monkeypatch.setattr(told.os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert told.threads(processes) == expected


def test_each_process_has_a_gpu_of_its_own(monkeypatch, second_of_two):
    import torch

    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert device_of("cuda") == device_of("auto") == torch.device("cuda:1")
    assert chosen == [torch.device("cuda:1")] * 2
    assert device_of("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="a GPU of its own"):
        device_of("cuda:0")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with pytest.raises(UserError, match="NCCL"):
        device_of("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="2 processes on this machine and 1 GPUs"):
        device_of("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of("auto") == torch.device("cpu")
    with pytest.raises(UserError, match="and 0 GPUs"):
        device_of("cuda")


def test_a_torch_without_processes(monkeypatch, second_of_two):
    import torch.distributed as dist

    monkeypatch.setattr(dist, "is_gloo_available", lambda: False)
    with pytest.raises(UserError, match="built without distributed processes"):
        team()


def test_the_others_that_never_come(monkeypatch, second_of_two):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "9")  # nobody is there
    monkeypatch.setenv("FEDAMP_RANK_TIMEOUT", "1")
    with pytest.raises(UserError, match="process 1 of 2 can't reach the others"):
        team()


@pytest.mark.parametrize("met", [True, False])
def test_a_mistake_ends_a_process_that_has_met_others_as_a_good_end_does(met, monkeypatch, capsys, second_of_two):
    """The interpreter's own end has aborted, with the threads of the processes' connections still there."""

    def leave(code):
        raise StopIteration(code)

    monkeypatch.setattr(meeting, "has_met", lambda: met)
    monkeypatch.setattr(meeting, "leave", leave)
    with pytest.raises(StopIteration if met else SystemExit) as end:
        fail("there is a mistake")
    assert end.value.args == (2,)
    assert capsys.readouterr().err == "fedamp (process 1 of 2): there is a mistake\n"


def test_joining_and_audits_are_for_one_process(second_of_two):
    for call in (lambda: fedamp.join("run", "silo.csv"), lambda: audit(RunConfig())):
        with pytest.raises(UserError, match=r"is for one process; torchrun is for fedamp\.run and fedamp\.compare"):
            call()
