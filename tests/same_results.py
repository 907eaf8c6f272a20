"""Two versions of the code side by side: a stated set of runs, and whether their results are equal bit for bit.

    git worktree add /tmp/before SOME_COMMIT
    python tests/same_results.py /tmp/before

Simulations go through the command line, which is the same in both. Federations are played in one process, by each
version's own `inprocess.py` (in tests/deploy before it moved to tests/federation).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]
METHODS = ["separate", "fedavg", "fedprox", "fedavg-ft", "fedprox-ft", "scaffold", "apfl", "fedamp", "heurfedamp"]
SMALL = ["--clients", "5", "--rounds", "3", "--epochs", "1"]

RUNS = {
    **{f"{m}-{e}": ["--method", m, "--engine", e, *SMALL] for m in METHODS for e in ("stacked", "loop")},
    "absent": ["--method", "scaffold", "--absent", "0.4", *SMALL],
    "poisoned": ["--method", "fedamp", "--poisoned", "0,3", *SMALL],
    "noisy": ["--method", "apfl", "--label-noise", "0.3", *SMALL],
    "own-start": ["--method", "heurfedamp", "--init", "own", "--seed", "7", *SMALL],
    "validated": ["--method", "fedamp", "--validation", "0.2", "--set", "method.sigma=10", *SMALL],
    "cnn": ["--method", "fedprox", "--model", "cnn", "--clients", "5", "--rounds", "2", "--steps", "3"],
    "iid-sgd": ["--method", "fedavg", "--setting", "iid", "--optimizer", "sgd", "--momentum", "0.9", *SMALL],
    "dirichlet": ["--method", "fedamp", "--setting", "dirichlet", "--set", "setting.beta=0.5", *SMALL],
    "silos": ["--data", "silos", "--label", "y", "--method", "fedamp", "--rounds", "3"],
    "amounts": ["--data", "amounts", "--label", "y", "--method", "heurfedamp", "--rounds", "3"],
    "resumed": ["--method", "scaffold", "--clients", "5", "--rounds", "12", "--epochs", "2"],
}


FEDERATIONS = {f"federation-{m}": m for m in METHODS}

FEDERATION = """
import sys
from importlib import import_module
from pathlib import Path

room, folder, method = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
inprocess = import_module(f"{room}.inprocess")
data = inprocess.write_silos(folder / "data")
inprocess.Local(folder, inprocess.plan_of(data, method, rounds=3), data).serve()
"""


def write_silos(folder: Path) -> None:
    """Write three silos of a table with numbers and words: classes to predict, and amounts."""
    rng = np.random.default_rng(0)
    for name in ("silos", "amounts"):
        (folder / name).mkdir()
        for silo in range(3):
            lines = ["age,pressure,ward,y"]
            for _ in range(60 + 20 * silo):
                age, pressure, ward = rng.normal(50, 10), rng.normal(120, 15), rng.choice(["a", "b", "c"])
                amount = age * 0.3 - pressure * 0.1 + silo + rng.normal()
                target = ("yes" if amount > 3 else "no") if name == "silos" else f"{amount:.3f}"
                lines.append(f"{age:.2f},{pressure:.1f},{ward},{target}")
            (folder / name / f"house-{silo}.csv").write_text("\n".join(lines) + "\n")


def play(checkout: Path, folder: Path, name: str) -> dict[str, str]:
    """Play one run with a checkout's code, and return a digest of each thing that it came to."""
    env = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    out = folder / checkout.name / name
    if name in FEDERATIONS:
        room = "federation" if (checkout / "tests/federation").is_dir() else "deploy"
        env["PYTHONPATH"] += f":{checkout / 'tests'}"
        command = [sys.executable, "-c", FEDERATION, room, str(out), FEDERATIONS[name]]
        out.mkdir(parents=True)
        subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True)
        return digests(out / "record")
    command = [sys.executable, "-m", "fedamp", "run", *RUNS[name], "--device", "cpu", "--out", str(out)]
    if name == "resumed":
        interrupt(command, env, folder, out)
    subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True)
    return digests(out)


def interrupt(command: list[str], env: dict[str, str], folder: Path, out: Path) -> None:
    """Stop a run after some rounds."""
    process = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines, end = out / "rounds.jsonl", time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if lines.exists() and len(lines.read_text().splitlines()) > 3:
            process.send_signal(signal.SIGINT)
            break
        time.sleep(0.01)
    process.wait(60)


def digests(out: Path) -> dict[str, str]:
    """Return digests of a run's models, weights and scores; seconds and the words of warnings are left out."""
    found = {}
    for name in ("models.safetensors", "best.safetensors", "xi.safetensors"):
        if (out / name).exists():
            raw = (out / name).read_bytes()
            head = int.from_bytes(raw[:8], "little")
            tensors = {k: v for k, v in json.loads(raw[8 : 8 + head]).items() if k != "__metadata__"}
            found[name] = hashlib.sha256(json.dumps(tensors, sort_keys=True).encode() + raw[8 + head :]).hexdigest()
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    for line in lines:  # who was refused counts, and not in which words
        line["events"], line["refused"] = len(line["events"]), sorted(line.get("refused", {}))
    plain = [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]
    found["rounds"] = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    result = json.loads((out / "result.json").read_text())
    for key in ("best", "last", "best_round", "metric", "worst", "bmta", "per_client", "models", "facts"):
        found[key] = json.dumps(result[key], sort_keys=True)
    return found


def main() -> None:
    """Compare this checkout with another one, run by run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="another checkout of this repository")
    parser.add_argument("--only", nargs="*", default=[*RUNS, *FEDERATIONS], help="names of runs")
    asked = parser.parse_args()
    unequal = 0
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(2) as pool:
        folder = Path(place)
        write_silos(folder)
        for name in asked.only:
            sides = [pool.submit(play, checkout, folder, name) for checkout in (asked.before.resolve(), HERE)]
            before, after = (side.result() for side in sides)
            differ = [key for key in before if before[key] != after.get(key)]
            unequal += bool(differ)
            print(f"{name:22} {'differs in ' + ', '.join(differ) if differ else 'equal'}", flush=True)
    print(f"{len(asked.only) - unequal} of {len(asked.only)} runs are equal bit for bit")
    sys.exit(1 if unequal else 0)


if __name__ == "__main__":
    main()
