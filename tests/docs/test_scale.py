"""The tables of docs/scale.md are what its model computes, and the model is that of the page's own formulas."""

import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model():
    return runpy.run_path(str(ROOT / "benchmarks" / "scale_model.py"))


def test_the_page_has_the_models_figures(model):
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert model["written"](page) == page, "python benchmarks/scale_model.py --write"
    assert "| adapters of rank 16 |" in page


def test_a_fit_finds_what_it_was_made_of(model):
    m, d = np.array([10.0, 30, 100, 300, 10]), np.array([5e4, 5e4, 1e6, 5e4, 1e7])
    columns = model["server_columns"](m, d)
    made = np.array([1e-3, 1e-12, 1e-9])
    np.testing.assert_allclose(model["fitted"](columns, np.stack(columns, 1) @ made), made, rtol=1e-6)
    assert (model["fitted"]([np.ones(3), np.array([1.0, 2, 3])], np.array([1.0, 3, 5])) >= 0).all()


def test_adapters_and_traffic_by_hand(model):
    assert model["adapters"]() == 11_272_192
    few, many = 10 * 408 * 2 / 3 + 8 * 100 * 2 + 65_536 * 2, 256 * (408 + 400) * 2 / 3 + 8 * 256**2 * 2 + 65_536 * 2
    assert model["heard"](10, 100, 3) == pytest.approx(few)
    assert model["heard"](256, 100, 3) == pytest.approx(many)
