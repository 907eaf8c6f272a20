"""Small tables of three hospitals, a run over them, and the rows of each that were held out for testing."""

import csv
from pathlib import Path

import numpy as np

import fedamp
from fedamp.runs.material import load_material

NAMES = ("hospital a", "hospital-a", "north")
HEADER = ["patient", "age", "year", "sex", "target"]


def write_hospitals(folder: Path, task: str = "classification") -> Path:
    """Write a csv for each; years are large numbers that differ little, as in float32 they would not."""
    folder.mkdir()
    for number, name in enumerate(NAMES):
        stream = np.random.default_rng(number)
        rows = []
        for place in range(80):
            age, sex, year = stream.normal(50, 10), stream.choice(["f", "m", "x"]), 20_000_000 + place % 7
            score = (age - 50) * (1 if number != 1 else -1) / 10 + (sex == "f") + stream.normal(0, 0.3)
            target = f"{1000 + 250 * score:.2f}" if task == "regression" else ["low", "mid", "top"][
                int(score > 0) + int(score > 1)
            ]  # fmt: skip
            rows.append([f"p{place}", f"{age:.4f}", str(year), str(sex), target])
        write_rows(folder / f"{name}.csv", rows, skip=("patient",))
    return folder


def write_rows(path: Path, rows: list[list[str]], skip=()) -> Path:
    """Write rows of HEADER, without some columns."""
    kept = [place for place, name in enumerate(HEADER) if name not in skip]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[row[place] for place in kept] for row in [HEADER, *rows]])
    return path


def run_hospitals(folder: Path, task: str = "classification", **settings):
    """Return a finished run in folder/run over the tables in folder/silos."""
    write_hospitals(folder / "silos", task)
    usual = {"rounds": 2, "epochs": 2, "lr": 0.02, "validation": 0.2, "model": "mlp", "seed": 1}
    return fedamp.run(
        data=str(folder / "silos"), label="target", task=task, out=folder / "run", **{**usual, **settings}
    )


def held_out(folder: Path, config, number: int) -> tuple[list[list[str]], list[str]]:
    """Return the rows of a hospital that its score is of, as rows of HEADER, and their targets."""
    clients = load_material(config).clients
    before = 80 * number
    with (folder / "silos" / f"{sorted(NAMES)[number]}.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    chosen = [rows[int(place) - before] for place in clients.test[number]]
    return [[f"p{place}", *row] for place, row in enumerate(chosen)], [row[-1] for row in chosen]
