"""Write the tables of docs/tutorial.md: three hospitals, a newcomer and new patients, as untidy as real ones.

    python examples/hospital_tables.py FOLDER

The patients are made up, the rule behind them is known: about 3 in 100 are readmitted, more often if they are old, have
a high CRP, smoke, or came by ambulance. At the hospitals of the coast, south and east, the marker says the opposite of
what it says inland: no single model is right for all of them.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import sys
from pathlib import Path

import numpy as np

POSITIVE = 0.03  # share of patients who are readmitted
INLAND, COAST = 1.0, -1.0
COLUMNS = ["patient_id", "admitted", "age", "bmi", "crp", "marker", "sex", "smoker", "arrival", "readmitted"]
SIZES = {"north": (2400, INLAND), "south": (1800, COAST), "west": (1500, INLAND)}
NEWCOMER = {"east": (900, COAST)}

Row = list[str]


def patients(count: int, coast: float, seed: int) -> list[Row]:
    """Return rows of COLUMNS as text, with "" where something was not recorded."""
    draw = np.random.default_rng(seed)
    age = draw.normal(62, 14, count).clip(18, 99)
    bmi = draw.normal(27, 5, count).clip(15, 60)
    crp = np.exp(draw.normal(2, 1, count))
    marker = draw.normal(0, 1, count)
    smoker = draw.random(count) < 0.25
    ambulance = draw.random(count) < 0.3
    risk = 0.05 * (age - 62) + 0.8 * (np.log(crp) - 2) + 1.2 * coast * marker + 0.7 * smoker + 0.8 * ambulance
    risk = risk + draw.logistic(0, 1, count)
    readmitted = risk > np.quantile(risk, 1 - POSITIVE)
    days = draw.integers(0, 730, count)
    known_bmi, known_smoker = draw.random(count) > 0.12, draw.random(count) > 0.08
    first = datetime.date(2023, 1, 1)
    return [
        [
            f"P{seed}{i:06d}",
            str(first + datetime.timedelta(days=int(days[i]))),
            f"{age[i]:.0f}",
            f"{bmi[i]:.1f}" if known_bmi[i] else "",
            f"{crp[i]:.1f}",
            f"{marker[i]:.3f}",
            "female" if draw.random() < 0.52 else "male",
            ("yes" if smoker[i] else "no") if known_smoker[i] else "",
            "ambulance" if ambulance[i] else "on foot",
            "yes" if readmitted[i] else "no",
        ]
        for i in range(count)
    ]


def write(path: Path, header: Row, rows: list[Row], separator: str = ",", decimal: str = ".", unknown: str = ""):
    """Write a table the way one hospital writes it; a name that ends in .gz is packed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        out = csv.writer(file, delimiter=separator)
        out.writerow(header)
        out.writerows([_cell(cell, decimal, unknown) for cell in row] for row in rows)


def _cell(cell: str, decimal: str, unknown: str) -> str:
    number = cell.replace(".", "", 1).replace("-", "", 1).isdigit()
    return cell.replace(".", decimal) if number else cell or unknown


def main(folder: Path) -> None:
    """Write all tables."""
    made = {name: patients(*size, seed) for seed, (name, size) in enumerate({**SIZES, **NEWCOMER}.items(), start=1)}
    write(folder / "silos" / "north.csv", COLUMNS, made["north"], separator=";", decimal=",")
    write(folder / "silos" / "south.csv", COLUMNS, made["south"], unknown="NA")
    write(folder / "silos" / "west.csv.gz", COLUMNS, made["west"])
    write(folder / "east.csv", COLUMNS, made["east"])
    # New patients of north: nobody knows yet whether they will be readmitted.
    new = [row[:-1] for row in patients(40, INLAND, 5)]
    write(folder / "new-patients.csv", COLUMNS[:-1], new, separator=";", decimal=",")
    positives = sum(row[-1] == "yes" for name in SIZES for row in made[name])
    rows = sum(len(made[name]) for name in SIZES)
    print(f"{folder}: {rows} patients of {len(SIZES)} hospitals, {positives} of them readmitted")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospitals"))
