"""How much memory runs take at their peak, beside what `fedamp run --dry-run` says.

    python benchmarks/memory.py [NAME ...]

Both are what a process grows by, beyond the program itself: everything that a run imports is there already. Each run is
a process of its own, on the CPU, with 2 rounds of 1 pass (memory does not depend on them) and a record in a folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

IID = "--setting iid --clients"
CASES = {
    name: flags.split()
    for name, flags in {
        "cnn x 100": f"--model cnn {IID} 100 --method fedamp",
        "mlp 512 x 300": f"--model mlp --set model.hidden=512 {IID} 300 --method fedamp",
        "cnn-small x 100": f"--model cnn-small {IID} 100 --method fedamp",
        "resnet18 x 20": f"--model resnet18 {IID} 20 --method fedamp",
        "1 M-row csv": "--data rows --label y --model logistic --method fedamp",
        "cnn x 100, autoamp": f"--model cnn {IID} 100 --method autoamp",
        "cnn x 30, validation, alone": f"--model cnn {IID} 30 --validation 0.2 --alone",
        "mlp x 100, looped": f"{IID} 100 --engine loop --method scaffold",
    }.items()
}
QUICK = ["--rounds", "2", "--epochs", "1"]
GIB = 1 << 30

MEASURED = """
import sys
from fedamp.cli.main import main
from fedamp.runs import earlier_split, identity, loop, setup
from fedamp.runs.memory import needs, process_memory
before = process_memory.resident()
try:
    main()
except SystemExit:
    pass
print("PEAK", process_memory.peak() - before, before)
"""


def main() -> None:
    """Print a row for each case."""
    with tempfile.TemporaryDirectory() as place:
        for name in sys.argv[1:] or CASES:
            if "--data" in CASES[name]:
                _write_rows(Path(place) / "rows")
            began = time.perf_counter()
            told, asked = said(CASES[name], place), time.perf_counter() - began
            most, program = used(CASES[name], place)
            print(
                f"{name:28} said {told / GIB:5.2f}  used {most / GIB:5.2f} GiB  {told / most - 1:+4.0%}  "
                f"(program {program / GIB:.2f}; dry run {asked:.0f} s)",
                flush=True,
            )


def said(flags: list[str], place: str | Path) -> int:
    """Return the bytes that a dry run says."""
    command = [sys.executable, "-m", "fedamp", "run", *flags, *QUICK, "--dry-run", "--json"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True, timeout=600)
    total: int = json.loads(done.stdout)["total"]
    return total


def used(flags: list[str], place: str | Path) -> tuple[int, int]:
    """Return the bytes that the run takes beyond the program, and those of the program itself."""
    out = tempfile.mkdtemp(dir=place)
    command = [sys.executable, "-c", MEASURED, "run", *flags, *QUICK, "--out", out]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True, timeout=3600)
    _, most, program = done.stdout.splitlines()[-1].split()
    return int(most), int(program)


def _write_rows(folder: Path) -> None:
    """Write 1,000,000 rows of 20 numbers and a label, in four silos."""
    if folder.exists():
        return
    folder.mkdir()
    rng = np.random.default_rng(0)
    for silo in range(4):
        x = rng.normal(size=(250_000, 20))
        table = np.column_stack([x, x[:, 0] + x[:, 1] > 0])
        header = ",".join([*(f"a{i}" for i in range(20)), "y"])
        np.savetxt(
            folder / f"silo-{silo}.csv", table, fmt=[*["%.4f"] * 20, "%d"], delimiter=",", header=header, comments=""
        )


if __name__ == "__main__":
    main()
