"""Federations over real processes, with TLS and keys: equal to the engine, and unharmed by what happens to them."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedamp.config import RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import make_schema, merge_schemas
from fedamp.federation import provision
from fedamp.federation.demo import NAMES, write_digits
from fedamp.federation.plan import Plan
from fedamp.federation.plan_files import read_federation
from fedamp.federation.processes import launch, logs, ports
from fedamp.federation.processes.waiting import wait_until
from fedamp.records.checkpoints import load_checkpoint
from fedamp.records.reading import read_lines
from fedamp.runs.material import silo_material
from fedamp.runs.round import play_round
from fedamp.runs.setup import assemble

pytestmark = pytest.mark.slow

FEDAMP = [sys.executable, "-m", "fedamp"]
TRIES = 3


class Cast:
    """A server and three silos, each in processes of its own, that can be killed and started again."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, rules: Rules, **settings) -> None:
        self.folder, self.stack = folder / "federation", stack
        self.data = dict(zip(NAMES, write_digits(folder / "data"), strict=True))
        schema = merge_schemas([make_schema([read_silo(path)]) for path in self.data.values()])
        values = {"data": "x", "setting": "natural", "clients": 3, "task": schema.task, "epochs": 1, **settings}
        plan = Plan("x", RunConfig.of(values), schema)
        provision.init(self.folder, list(NAMES), plan, rules, ["localhost"], ports.free_port(), None)
        home = self.folder / "server/run/flwr"
        self.env = launch.environment(home, self.folder / "server/code", OMP_NUM_THREADS="1")
        self.running: dict[str, subprocess.Popen] = {}

    def server_up(self) -> None:
        self._start("server", [*FEDAMP, "federation", "up", str(self.folder)], self.folder / "up.log")

    def silo_up(self, name: str, *more: str) -> None:
        bundle = self.folder / "bundles" / name
        command = [*FEDAMP, "silo", "up", str(bundle), "--data", str(self.data[name]), *more]
        self._start(name, command, bundle / "up.log")

    def _start(self, name: str, command: list[str], log: Path) -> None:
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, env=self.env, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.running[name] = process
        self.stack.callback(self.end, process)

    def end(self, process: subprocess.Popen) -> None:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def kill(self, name: str) -> None:
        """As when the power goes: what it started goes with it."""
        self.running[name].kill()
        self.running[name].wait(10)

    def silo_log(self, name: str) -> str:
        path = self.folder / "bundles" / name / "run" / "log.txt"
        return path.read_text() if path.exists() else ""

    def log(self) -> str:
        path = self.folder / "record" / "log.txt"
        return path.read_text() if path.exists() else ""

    def wait(self, true, seconds: float, what: str) -> None:
        if not wait_until(true, seconds):
            server = logs.tail(self.folder / "server/run/server.log", 30) + logs.tail(self.folder / "up.log", 30)
            silos = "\n".join(f"{name}: {self.silo_log(name)}" for name in NAMES)
            pytest.fail(f"waited {seconds} s for {what}\n{self.log()}\n{silos}\n{server}")

    def done(self, k: int) -> bool:
        return f" round {k}/" in self.log()

    def node(self, name: str) -> int:
        """Return the process in which a silo trains."""
        wanted = ["-m", "fedamp.federation.silo.node", str(self.folder / "bundles" / name)]
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes().decode(errors="replace").split("\0")[1:4] == wanted:
                    return int(path.parent.name)
        raise AssertionError(f"no process of {name}")


@pytest.fixture
def stack():
    with contextlib.ExitStack() as stack:
        yield stack


def engine(cast: Cast):
    """Return the server's state as the engine has it, with the silos present that were present."""
    plan = read_federation(cast.folder).plan
    config = replace(plan.config, engine="loop")
    material = silo_material(config, [read_silo(p) for p in cast.data.values()], plan.schema, [0, 1, 2])
    made = assemble(config, material)
    server, clients = made.method.server_init(made.w), made.method.client_init(made.w)
    lines = [line for line in read_lines(cast.folder / "record" / "rounds.jsonl") if "present" in line]
    assert [line["round"] for line in lines] == list(range(1, config.rounds + 1))
    for line in lines:
        k, present = line["round"], torch.tensor(line["present"])
        played = play_round(
            made.method, server, clients, k, lambda who, k=k: made.trainer.local(made.clients.take(who), k), present
        )
        server, clients = played.server, played.clients
    return server, lines


def all_from_round_one(folder: Path, stack: contextlib.ExitStack, rules: Rules, **settings) -> Cast:
    """Return a cast that plays, all of it from the first round on, as in the engine.

    Two silos are enough to begin. If the third one's process took longer to start, the server knew of two clients in
    round 1, which SCAFFOLD's mean counts: that is another federation, and another cast is tried.
    """
    for number in range(TRIES):
        (folder / str(number)).mkdir()
        cast = Cast(folder / str(number), stack, rules, **settings)
        cast.server_up()
        for name in NAMES:
            cast.silo_up(name)
        cast.wait(lambda cast=cast: cast.done(1), 120, "round 1")
        if re.search(r" round 1/\d+: 3 of 3 silos", cast.log()):
            return cast
        for process in cast.running.values():
            cast.end(process)
    pytest.fail(f"a silo came after the first round, {TRIES} times: {cast.log()}")


def assert_equal(cast: Cast) -> list:
    expected, lines = engine(cast)
    saved = load_checkpoint(cast.folder / "record", torch.device("cpu"))
    keys = [member.key for member in read_federation(cast.folder).members]
    order = torch.tensor([saved.how["order"].index(key) for key in keys])
    for name, rows in expected.rows.items():
        torch.testing.assert_close(saved.server.rows[name].params[order], rows.params)
    for name, rows in expected.shared.items():
        if rows.params.shape[1] > 1:
            torch.testing.assert_close(saved.server.shared[name].params, rows.params)
    for name, pairs in expected.pairs.items():
        torch.testing.assert_close(saved.server.pairs[name][order][:, order], pairs)
    return lines


def test_fedamp_over_real_processes_is_the_engines_fedamp(tmp_path, stack):
    cast = Cast(tmp_path, stack, Rules(min_silos=3, reply_timeout=60), method="fedamp", rounds=2)
    cast.server_up()
    for name in NAMES:
        cast.silo_up(name)
    server = cast.running["server"]
    cast.wait(lambda: server.poll() is not None, 200, "the end of two rounds")
    assert server.returncode == 0, (cast.folder / "up.log").read_text()
    lines = assert_equal(cast)
    assert all(all(line["present"]) for line in lines)
    said = subprocess.run(
        [*FEDAMP, "federation", "status", str(cast.folder)], env=cast.env, capture_output=True, text=True, timeout=60
    )
    assert "finished: round 2 of 2" in said.stdout


def test_autoamp_is_the_engines_and_silos_take_home_what_the_server_chose(tmp_path, stack):
    """The choice of the last round too, of which only a last message tells."""
    cast = Cast(tmp_path, stack, Rules(min_silos=3), method="autoamp", rounds=3, validation=0.2)
    cast.server_up()
    for name in NAMES:
        cast.silo_up(name)
    server = cast.running["server"]
    cast.wait(lambda: server.poll() is not None, 250, "the end of three rounds")
    assert server.returncode == 0, (cast.folder / "up.log").read_text()
    assert_equal(cast)
    home = json.loads((cast.folder / "record" / "result.json").read_text())["take_home"]
    for i, name in enumerate(NAMES):
        spec = json.loads((cast.folder / "bundles" / name / "run" / "models" / "chosen.json").read_text())
        assert (spec["entry"], spec["score"]["round"]) == (home["entry"], home["round"])
        assert 100 * spec["score"]["test"] == pytest.approx(home["scores"][i])


def test_scaffold_survives_a_killed_silo_a_lost_reply_and_a_killed_server(tmp_path, stack):
    """Whoever was present in the end, the state is the engine's with just these: nothing is half done."""
    rules = Rules(min_silos=2, late_after=3, reply_timeout=60)
    cast = all_from_round_one(tmp_path, stack, rules, method="scaffold", rounds=8, epochs=20)

    # A silo falls asleep until the round is over: wherever it was, its reply is lost (see test_server_resume).
    lost = NAMES[0]
    os.kill(node := cast.node(lost), signal.SIGSTOP)
    k = 1 + len(re.findall(r" round \d+/8: ", cast.log()))
    cast.wait(lambda: cast.done(k), 90, f"round {k} without the first silo's reply")
    os.kill(node, signal.SIGCONT)

    # A silo is killed in the middle of a round, and started again.
    killed = NAMES[1]
    cast.wait(lambda: cast.done(k + 1), 90, "the next round")
    cast.kill(killed)
    time.sleep(1)
    cast.silo_up(killed)

    # The server is killed, and started again.
    cast.wait(lambda: cast.done(k + 2), 120, "one more round")
    cast.kill("server")
    before = cast.log()
    cast.server_up()
    cast.wait(lambda: "continuing after round" in cast.log()[len(before) :], 90, "the server to go on")

    server = cast.running["server"]
    cast.wait(lambda: server.poll() is not None, 300, "the end of eight rounds")
    assert server.returncode == 0, (cast.folder / "up.log").read_text()
    lines = assert_equal(cast)
    missed = {name: [line["round"] for line in lines if not line["present"][i]] for i, name in enumerate(NAMES)}
    assert k in missed[lost]
    assert lines[-1]["present"][0], "who lost a reply comes back"
    assert lines[-1]["present"][1], "who was killed comes back"


def test_data_that_changes_in_mid_run_is_told_and_moves_no_row(tmp_path, stack):
    cast = Cast(tmp_path, stack, Rules(min_silos=3), method="fedamp", rounds=4)
    name, path = NAMES[0], cast.data[NAMES[0]]

    def sides():
        config, schema = read_federation(cast.folder).plan.config, read_federation(cast.folder).plan.schema
        clients = silo_material(config, [read_silo(path)], schema, [0]).clients
        return [{clients.digests[i] for i in part[0].tolist()} for part in (clients.train, clients.test)]

    train, test = sides()
    cast.server_up()
    for each in NAMES:
        cast.silo_up(each)
    cast.wait(lambda: cast.done(1), 150, "the first round")
    with np.load(path) as file:
        kept = {key: file[key][20:] for key in file.files}
    with write_in_place(path) as whole:
        np.savez(whole, **kept)
    server = cast.running["server"]
    cast.wait(lambda: server.poll() is not None, 250, "the end of four rounds")
    assert server.returncode == 0, (cast.folder / "up.log").read_text()
    train_after, test_after = sides()
    assert not test_after & train
    assert not train_after & test
    assert "the data has changed: rows 20 removed" in cast.silo_log(name)
    assert f"{name}: its data changed in round " in cast.log()
    assert cast.log().count("its data changed") == 1


@contextlib.contextmanager
def write_in_place(path: Path):
    """Give a file to write to, and put it in a silo's place at once: a round may be reading it."""
    whole = path.with_name(".new.npz")
    yield whole
    whole.replace(path)
