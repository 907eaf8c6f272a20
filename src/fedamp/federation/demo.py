"""`fedamp federation try`: a server and three silos on one machine, with digits, certificates and keys."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.table import Table

from fedamp.config import RunConfig
from fedamp.config.reply_limits import Rules
from fedamp.data import load_data
from fedamp.data.partition import make_setting
from fedamp.data.silos.read import read_silo
from fedamp.data.silos.schema import Schema, make_schema, merge_schemas
from fedamp.errors import UserError
from fedamp.federation import provision
from fedamp.federation.plan import Plan
from fedamp.federation.processes import launch, logs, ports
from fedamp.federation.processes.waiting import wait_until
from fedamp.records.reading import read_run
from fedamp.runs.parts import method_of

NAMES = ("hospital-a", "hospital-b", "hospital-c")
A_ROUND, TO_START = 120.0, 180.0  # seconds after which something is wrong
Say = Callable[[str], None]


def play(
    method: str,
    rounds: int,
    folder: Path | None,
    keep: bool,
    share_models: bool,
    say: Say,
    show: Callable[[Table], None],
) -> None:
    """Make a federation, run it to its end, and show its scores; no process is left behind."""
    with _place(folder, keep) as place, launch.ending_in_order():
        data = write_digits(place / "data")
        schema = merge_schemas([make_schema([read_silo(path)]) for path in data])
        federation = place / "federation"
        plan = Plan("try", _config(method, rounds, share_models, schema), schema)
        provision.init(
            federation, list(NAMES), plan, Rules(min_silos=len(NAMES)), ["localhost"], ports.free_port(), None
        )
        say(f"a federation of {len(NAMES)} silos is in {federation}, and each silo's digits are in {place / 'data'}")
        began = time.monotonic()
        run_all(federation, data, TO_START + rounds * A_ROUND, say)
        played = "1 round" if rounds == 1 else f"{rounds} rounds"
        say(
            f"{played} over real processes, with TLS and keys, took {time.monotonic() - began:.0f} s; "
            f"the median round took {median_round(federation / 'record'):.1f} s"
        )
        show(_scores(federation / "record", method_of(plan.config).scored))
        if folder or keep:
            say(f"the record is in {federation / 'record'}; for a report, run: fedamp report {federation / 'record'}")
        else:
            say("to keep the folder, so that `fedamp report` can make a report of its record, give --keep")


def write_digits(folder: Path, seed: int = 0) -> list[Path]:
    """Write the digits of three silos, split by the practical setting, one file each."""
    dataset = load_data("digits")
    pools = dataset.train_pool.numpy(), dataset.test_pool.numpy()
    assigned = make_setting("practical", groups=2).assign(dataset.y.numpy(), *pools, len(NAMES), seed)
    folder.mkdir(parents=True)
    paths = []
    for name, train, test in zip(NAMES, assigned.train, assigned.test, strict=True):
        rows = np.concatenate([train, test])
        paths.append(folder / f"{name}.npz")
        np.savez(paths[-1], x=dataset.x.numpy()[rows].astype(np.float32), y=dataset.y.numpy()[rows])
    return paths


def _config(method: str, rounds: int, share_models: bool, schema: Schema) -> RunConfig:
    values = {"data": "try", "setting": "natural", "clients": len(NAMES), "task": schema.task}
    return RunConfig.of({**values, "method": method, "rounds": rounds, "share_models": share_models})


@contextlib.contextmanager
def _place(folder: Path | None, keep: bool) -> Iterator[Path]:
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not empty; give a new folder")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
    elif keep:
        yield Path(tempfile.mkdtemp(prefix="fedamp-try-"))
    else:
        with tempfile.TemporaryDirectory(prefix="fedamp-try-", ignore_cleanup_errors=True) as made:
            yield Path(made)


def run_all(federation: Path, data: list[Path], seconds: float, say: Say) -> None:
    """Start the server and the silos as their operators would, and wait for the server to end.

    A silo has the name of its data's file.
    """
    fedamp = [sys.executable, "-m", "fedamp"]
    env = launch.environment(federation / "server/run/flwr", federation / "server/code", OMP_NUM_THREADS="1")
    log = federation / "up.log"
    follower = logs.Follower(federation / "record" / "log.txt")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(launch.running([*fedamp, "federation", "up", str(federation)], env, log, 30.0))
        for path in data:
            bundle = federation / "bundles" / path.stem
            command = [*fedamp, "silo", "up", str(bundle), "--data", str(path)]
            stack.enter_context(launch.running(command, env, bundle / "up.log", 30.0))
        end = time.monotonic() + seconds
        while server.poll() is None and time.monotonic() < end:
            wait_until(lambda: server.poll() is not None, 0.5)
            for line in follower.lines():
                say(line)
        for line in follower.lines():
            say(line)
        code = server.poll()
    if code != 0:
        what = f"took more than {seconds:.0f} s" if code is None else f"ended with {code}"
        raise UserError(f"the server {what}; the end of its log: {logs.tail(log, 8)}")


def median_round(record: Path) -> float:
    """Return how many seconds a round took, the median of all."""
    return statistics.median(float(line["seconds"]) for line in read_run(record).lines if "present" in line)


def _scores(record: Path, entry: str) -> Table:
    """Return the scores of each silo's own or received model, before the first round and in the end."""
    run = read_run(record)
    lines = [line["test"].get(entry, {}).get("accuracy") for line in run.lines]
    scored = [line for line in lines if line]
    sizes = run.facts.sizes or [None] * len(NAMES)
    table = Table("silo", "training samples", f"test accuracy of the {entry} model before round 1", "in the end")
    for name, size, first, last in zip(NAMES, sizes, scored[0], scored[-1], strict=True):
        table.add_row(name, str(size or "-"), _shown(first), _shown(last))
    return table


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"
