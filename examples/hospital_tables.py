"""Write the tables of docs/tutorial.md: three hospitals, a newcomer and new patients, as untidy as real ones.

    python examples/hospital_tables.py FOLDER

The patients are made up, the rule behind them is known: 3 in 100 are readmitted, more often if they are old, smoke or
came by ambulance, and depending on fifteen laboratory values. One of these, the marker, says half as much at the coast
(south, east) as it does inland.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import sys
from pathlib import Path

import numpy as np

POSITIVE = 0.03  # share of patients who are readmitted
INLAND, COAST = 1.0, 0.5
HOSPITALS = {"north": (1500, INLAND), "south": (1200, COAST), "west": (900, INLAND), "east": (700, COAST)}
NEWCOMER = "east"
FIRST_DAY = datetime.date(2023, 1, 1)

LABS = {  # mean and standard deviation in the usual units, and how much one deviation adds to the risk
    "hemoglobin": (13.5, 1.8, -0.5),
    "leukocytes": (8.1, 2.6, 0.4),
    "platelets": (250, 70, -0.4),
    "sodium": (139, 4, -0.4),
    "potassium": (4.2, 0.5, 0.3),
    "creatinine": (1.1, 0.4, 0.6),
    "urea": (38, 14, 0.4),
    "bilirubin": (0.8, 0.3, 0.3),
    "albumin": (4.0, 0.5, -0.6),
    "glucose": (118, 32, 0.4),
    "lactate": (1.6, 0.6, 0.5),
    "calcium": (9.3, 0.5, -0.3),
    "crp": (22, 11, 0.6),
    "troponin": (14, 6, 0.5),
    "marker": (0, 1, 0.8),
}
COLUMNS = ["patient_id", "admitted", "age", "sex", "smoker", "arrival", *LABS, "readmitted"]

Row = list[str]


def patients(count: int, coast: float, seed: int) -> list[Row]:
    """Return rows of COLUMNS as text, with "" where something was not recorded."""
    draw = np.random.default_rng(seed)
    age, labs = draw.normal(62, 14, count).clip(18, 99), draw.normal(0, 1, (count, len(LABS)))
    smoker, ambulance, male = (draw.random(count) < share for share in (0.25, 0.3, 0.48))
    weights = np.array([weight for _, _, weight in LABS.values()])
    weights[-1] *= coast
    risk = 0.05 * (age - 62) + 0.7 * smoker + 0.8 * ambulance + labs @ weights + draw.logistic(0, 1, count)
    readmitted = risk > np.quantile(risk, 1 - POSITIVE)
    days, known = draw.integers(0, 730, count), draw.random((count, len(LABS))) > 0.05
    asked = draw.random(count) > 0.08
    return [
        [
            f"P{seed}{i:06d}",
            str(FIRST_DAY + datetime.timedelta(days=int(days[i]))),
            f"{age[i]:.0f}",
            "male" if male[i] else "female",
            ("yes" if smoker[i] else "no") if asked[i] else "",
            "ambulance" if ambulance[i] else "on foot",
            *(
                f"{mean + deviation * labs[i, j]:.2f}" if known[i, j] else ""
                for j, (mean, deviation, _) in enumerate(LABS.values())
            ),
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
    made = {name: patients(*size, seed) for seed, (name, size) in enumerate(HOSPITALS.items(), start=1)}
    write(folder / "silos" / "north.csv", COLUMNS, made["north"], separator=";", decimal=",")
    write(folder / "silos" / "south.csv", COLUMNS, made["south"], unknown="NA")
    write(folder / "silos" / "west.csv.gz", COLUMNS, made["west"])
    write(folder / f"{NEWCOMER}.csv", COLUMNS, made.pop(NEWCOMER))
    # New patients of north: nobody knows yet whether they will be readmitted.
    new = [row[:-1] for row in patients(40, INLAND, 5)]
    write(folder / "new-patients.csv", COLUMNS[:-1], new, separator=";", decimal=",")
    rows = [row for table in made.values() for row in table]
    readmitted = sum(row[-1] == "yes" for row in rows)
    print(f"{folder}: {len(rows)} patients of {len(made)} hospitals, {readmitted} of them readmitted")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospitals"))
