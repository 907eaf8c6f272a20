"""Day two over real processes: a record from an older copy, a silo on a new disk, a silo that is removed."""

import json
import re
import shutil
import subprocess

import pytest

from fedamp.config.reply_limits import Rules
from fedamp.federation.demo import NAMES
from federation.test_federation import FEDAMP, Cast, stack

pytestmark = pytest.mark.slow
__all__ = ["stack"]


def rounds(cast: Cast) -> int:
    return max((int(k) for k in re.findall(r" round (\d+)/", cast.log())), default=0)


def test_a_federation_goes_on_after_a_restore_a_new_disk_and_a_removal(tmp_path, stack):
    cast = Cast(tmp_path, stack, Rules(min_silos=2, reply_timeout=60), rounds=100_000, model="logistic")
    cast.server_up()
    for name in NAMES:
        cast.silo_up(name)
    cast.wait(lambda: rounds(cast) >= 3, 120, "three rounds")
    record, backup = cast.folder / "record", tmp_path / "backup"
    cast.kill("server")
    shutil.copytree(record, backup)
    kept = rounds(cast)
    cast.server_up()
    cast.wait(lambda: rounds(cast) >= kept + 4, 120, "four more")
    # The record is lost, and an older copy put in its place; one silo's disk is new.
    cast.kill("server")
    cast.kill(NAMES[1])
    shutil.rmtree(record)
    shutil.copytree(backup, record)
    shutil.rmtree(cast.folder / "bundles" / NAMES[1] / "run")
    cast.server_up()
    cast.silo_up(NAMES[1])
    everyone = re.compile(r"round (\d+)/\d+: 3 of 3 silos")
    cast.wait(lambda: any(int(k) > kept for k in everyone.findall(cast.log())), 180, "a round with all three")
    assert cast.log().count("it is an older copy; going on from it") == 1
    assert re.search(rf"goes on, since this method needs none: .*{NAMES[1]}", cast.log())
    assert "needs none of them, so this silo goes on" in cast.silo_log(NAMES[0])
    # One of them is removed while the server runs.
    command = [*FEDAMP, "federation", "remove", str(cast.folder), NAMES[2]]
    done = subprocess.run(command, env=cast.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    cast.wait(lambda: "2 of 2 silos" in cast.log(), 60, "a round without it")
    silos = json.loads((record / "status.json").read_text())["silos"]
    assert [silo["state"] for silo in silos] == ["in", "in", "removed"]
    before = cast.silo_log(NAMES[2])
    now = rounds(cast)
    cast.wait(lambda: rounds(cast) >= now + 3, 60, "three rounds more")
    assert cast.silo_log(NAMES[2]).count(" round ") == before.count(" round ")
