"""A value that flattens its column is told, with how far off it is; what only looks odd is not."""

import numpy as np
import pytest

import fedamp
from fedamp.data.silos.extremes import extreme_warnings
from fedamp.data.silos.raw import RawSilo
from fedamp.data.silos.schema import make_schema

ROWS = 400
USUAL = np.random.default_rng(0).normal(50, 2, ROWS)


def warned(column, missing="refuse", dates=()):
    halves = np.split(np.asarray(column, dtype=np.float64), 2)
    silos = [
        RawSilo(name, half[:, None], np.arange(len(half)) % 2, columns=("age",), dates=dates)
        for name, half in zip("ab", halves, strict=True)
    ]
    return extreme_warnings(silos, make_schema(silos, missing=missing))


def with_cells(value, count=1):
    return np.where(np.arange(ROWS) < count, value, USUAL)


def test_one_cell_that_flattens_all_others():
    (line,) = warned(with_cells(1e6))
    away = (1e6 - USUAL[1:].mean()) / USUAL[1:].std()
    assert line.startswith(
        f"column 'age' has 1000000 in 1 cell, {away:.0f} standard deviations of the others from their mean: after the "
        "scaling these hardly differ."
    )
    assert "--drop age" in line


def test_a_code_for_what_is_not_known():
    (line,) = warned(with_cells(-999999, 20))
    assert "has -999999 in 20 cells" in line
    assert warned(with_cells(-999999, 21)) == []  # no exception any more


def test_missing_cells_are_no_cells():
    column = with_cells(1e6)
    column[5:50] = np.nan
    assert "has 1000000 in 1 cell" in warned(column, missing="fill")[0]


def test_a_date_is_written_as_one():
    (line,) = warned(with_cells(2_932_896), dates=("age",))
    assert "has 9999-12-31 in 1 cell" in line


@pytest.mark.parametrize(
    "column",
    [
        USUAL,
        with_cells(90),  # twenty standard deviations, and the others differ all the same
        np.arange(ROWS) == 7,  # a rare yes
        np.full(ROWS, 3.0),
        np.random.default_rng(0).lognormal(0, 2, ROWS),  # incomes
        np.random.default_rng(0).pareto(1.2, ROWS),
    ],
)
def test_what_is_not_told(column):
    assert warned(column) == []


def test_it_stands_among_a_runs_warnings(tmp_path):
    (tmp_path / "silos").mkdir()
    for name, first in (("a", 1e6), ("b", 50.0)):
        rows = [f"{first if i == 0 else value},{'yn'[i % 2]}" for i, value in enumerate(USUAL[:200])]
        (tmp_path / "silos" / f"{name}.csv").write_text("\n".join(["age,ill", *rows]) + "\n")
    run = fedamp.run(data=str(tmp_path / "silos"), label="ill", rounds=1, steps=1, model="logistic")
    assert any(each.startswith("column 'age' has 1000000 in 1 cell") for each in run.warnings)
