"""AutoAMP as it is, against methods whose knobs were tuned: digits in four settings, and small silos.

    python benchmarks/without_tuning.py                          # prints the tables, in about 25 minutes on two cores
    python benchmarks/without_tuning.py --into docs/autoamp.md   # writes them between the page's markers

Digits: 20 clients, 30 rounds, best mean test accuracy over the rounds (in percent), mean of three seeds. FedAMP's and
HeurFedAMP's sigma, and for each method which of its models counts (w, u), were chosen on a fifth of the training
samples of a run with another seed; the runs themselves train on all. FedAvg and FedProx are listed with both models.
Silos: 100 rows, 8 normal features, y = [x.a > 0]; "opposite": flipped in every second silo; "different": a rule of its
own for each silo; "related": a + 0.5 times a rule of its own; MLP, 30 rounds, batch 20, mean of ten seeds, all methods
with their defaults.
"""

import argparse
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedamp

TUNED_ON, SEEDS = 1000, (801, 802, 803)
SILO_SEEDS = range(930, 940)
SETTINGS: dict[str, Any] = {
    "practical": "practical",
    "Dirichlet 0.3": {"name": "dirichlet", "beta": 0.3},
    "pathological": "pathological",
    "IID": "iid",
}
GRIDS: dict[str, list[dict[str, Any]]] = {
    "separate": [{}],
    "fedavg": [{}],
    "fedprox": [{}],
    "fedamp": [{"sigma": sigma} for sigma in (0.03, 0.1, 0.3, 1.0, 3.0, "median", "local", "spread")],
    "heurfedamp": [{"sigma": sigma} for sigma in (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)],
    "autoamp": [{}],
}
ENTRIES = ("own", "received")
LETTERS = {"own": "w", "received": "u"}
PLACE = re.compile(r"(<!-- without tuning[^>]* -->\n).*?(<!-- end -->)", re.DOTALL)

Job = tuple[str, Any, str, dict[str, Any], int]


def best(job: Job) -> dict[tuple[str, str], float]:
    """Return the best mean score over the rounds of a run, in percent, by samples and model."""
    kind, what, method, parameters, seed = job
    torch.set_num_threads(1)
    chosen = {"name": method, **parameters}
    if kind == "digits":
        tuning = {"validation": 0.2} if seed == TUNED_ON else {}
        run = fedamp.run(data="digits", setting=what, clients=20, rounds=30, method=chosen, seed=seed, **tuning)
    else:
        run = fedamp.run(clients=silos(*what, seed), method=chosen, rounds=30, batch_size=20, seed=seed)
    found = {}
    for on in ("test", "validation"):
        for entry in ENTRIES:
            means = [np.mean(line[on][entry]["accuracy"]) for line in run.history if entry in line.get(on, {})]
            if means:
                found[on, entry] = 100 * float(max(means))
    return found


def silos(count: int, rule: str, seed: int) -> list[tuple[np.ndarray, ...]]:
    """Return small silos under one rule, under two opposite ones, under a rule each, or under related rules."""
    g = np.random.default_rng(seed)
    common, made = g.normal(size=8), []
    for i in range(count):
        own = common
        if rule == "different":
            own = g.normal(size=8)
        elif rule == "related":
            own = common + 0.5 * g.normal(size=8)
        x = g.normal(size=(500, 8)).astype(np.float32)
        y = (x @ own > 0).astype(np.int64)
        if rule == "opposite" and i % 2:
            y = 1 - y
        made.append((x[:100], y[:100], x[100:], y[100:]))
    return made


def digits(pool: ProcessPoolExecutor) -> Iterator[str]:
    """Return the table of the digits, line by line."""
    names = [f"{method}, {letter}" for method in GRIDS for letter in LETTERS.values()]
    names.remove("separate, u")
    yield "| setting | " + " | ".join(names) + " | tuned |"
    yield "|---|" + "---:|" * len(names) + "---|"
    for setting, what in SETTINGS.items():
        tries = [(method, point) for method, points in GRIDS.items() for point in points]
        scores = list(pool.map(best, [("digits", what, *one, TUNED_ON) for one in tries]))
        cells, chosen = {}, []
        for method in GRIDS:
            for entry, letter in LETTERS.items():
                held = [(found.get(("validation", entry), -1.0), i) for i, found in enumerate(scores)]
                _, which = max((score, -i) for score, i in held if tries[i][0] == method)
                point = tries[-which][1]
                runs = list(pool.map(best, [("digits", what, method, point, seed) for seed in SEEDS]))
                if ("test", entry) in runs[0]:
                    cells[f"{method}, {letter}"] = float(np.mean([run["test", entry] for run in runs]))
                    chosen += [f"{letter} {point['sigma']}"] if point else []
        top = max(cells.values())
        shown = [f"**{value:.2f}**" if value == top else f"{value:.2f}" for value in map(cells.get, names)]
        yield f"| {setting} | " + " | ".join(shown) + f" | sigma: {', '.join(chosen)} |"


def small_silos(pool: ProcessPoolExecutor) -> Iterator[str]:
    """Return the table of the silos, line by line."""
    yield "| silos | Separate | FedAvg | FedAvg-FT | FedAMP, w | FedAMP, u | AutoAMP, w | AutoAMP, u |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    columns = (
        ("separate", "own"),
        ("fedavg", "received"),
        ("fedavg", "own"),
        ("fedamp", "own"),
        ("fedamp", "received"),
        ("autoamp", "own"),
        ("autoamp", "received"),
    )
    for rule in ("opposite", "alike", "related", "different"):
        for count in (2, 3, 10):
            jobs = {
                method: [("silos", (count, rule), method, {}, seed) for seed in SILO_SEEDS] for method, _ in columns
            }
            runs = {method: list(pool.map(best, jobs[method])) for method in jobs}
            cells = [np.mean([run["test", entry] for run in runs[method]]) for method, entry in columns]
            yield f"| {count} {rule} | " + " | ".join(f"{value:.2f}" for value in cells) + " |"


TABLES = {"silos": small_silos, "digits": digits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, help="a page with the markers to write between")
    parser.add_argument("--only", choices=list(TABLES), help="one of the two tables (not with --into)")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args()
    lines = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for table in [TABLES[asked.only]] if asked.only else TABLES.values():
            for line in table(pool):
                print(line, flush=True)
                lines.append(line)
            lines.append("")
    if asked.into is not None:
        text = "\n".join(lines)
        page, number = PLACE.subn(lambda at: f"{at[1]}\n{text}\n{at[2]}", asked.into.read_text(encoding="utf-8"))
        if not number:
            parser.error(f"{asked.into} has no '<!-- without tuning -->' and '<!-- end -->' to write between")
        asked.into.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
