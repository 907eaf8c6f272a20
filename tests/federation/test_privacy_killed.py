"""A silo that is killed at any moment has written down at least what left it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fedamp
from federation.killed_silo import MOMENTS


@pytest.mark.slow
def test_killed_at_twenty_moments_the_ledger_holds_what_left(tmp_path):
    here = Path(__file__).parent
    paths = f"{Path(fedamp.__file__).parents[1]}:{here.parent}"
    env = {"PYTHONPATH": paths, "PATH": "", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    command = [sys.executable, str(here / "killed_silo.py"), str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=True)
    seen = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(seen) == len(MOMENTS) == 20
    before = 0
    for each in seen:
        assert each["signal"] == signal.SIGKILL
        assert each["rounds"] >= each["left"]
        assert each["rounds"] >= before  # nothing is ever taken back
        before = each["rounds"]
        assert each["twice"] == 0  # what was paid for leaves after the restart
    assert seen[-1]["left"] >= 3  # it did take part in between
    assert any(each["rounds"] > each["left"] for each in seen)  # some died between the two
